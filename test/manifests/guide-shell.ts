import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { Cluster } from "../cluster/cluster.ts";
import { createNode } from "../cluster/objects.ts";
import { commandsOfGuide, yamlOfGuide } from "./install-guide.ts";

/** Nodes of docs/install.md, and one without a watcher, with their addresses. */
const nodes = { "cp-1": "10.0.0.11", "cp-2": "10.0.0.12", n1: "10.0.0.21" } as const;

/** Runs commands of docs/install.md as an operator does: as administrator of a cluster, at the top of a clone. */
export interface GuideShell {
  /** Folder that looks like a clone of the repository. */
  readonly clone: string;
  /** Runs a command with bash, and returns its output. Errors: that of the command, with its messages. */
  run(command: string, input?: string): string;
  /** Runs steps 2 to 5: everything is then applied to the cluster. */
  install(): void;
}

/** Creates the nodes that the guide names, and a folder for its commands, which find these programs first. */
export async function openGuideShell(
  { api, folder, kubeconfig }: Cluster,
  ...programs: readonly string[]
): Promise<GuideShell> {
  for (const [name, address] of Object.entries(nodes)) {
    await createNode(api, name);
    const addresses = [
      { type: "InternalIP", address },
      { type: "Hostname", address: name },
    ];
    await api.patch(`/api/v1/nodes/${name}/status`, { status: { addresses } });
  }
  const clone = join(folder, "clone");
  mkdirSync(join(clone, "my-cluster"), { recursive: true });
  for (const name of ["deploy", "node_modules", "package.json", "services"])
    symlinkSync(resolve(name), join(clone, name));
  writeFileSync(join(clone, "my-cluster", "kustomization.yaml"), yamlOfGuide()[0] ?? "");
  const PATH = [resolve("node_modules/.bin"), ...programs.map(dirname), process.env.PATH].join(":");
  const env = { ...process.env, PATH, KUBECONFIG: kubeconfig("admin") };
  const run = (command: string, input = ""): string =>
    execFileSync("bash", ["-euo", "pipefail", "-c", command], {
      cwd: clone,
      env,
      input,
      encoding: "utf8",
      stdio: "pipe",
    });
  return {
    clone,
    run,
    install: () => {
      for (const step of ["2. Choose", "3. State", "4. Make", "5. Apply"]) {
        for (const command of commandsOfGuide(step)) run(command);
      }
    },
  };
}
