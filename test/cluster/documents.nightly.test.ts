import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, symlinkSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { expect, test } from "vitest";
import { readBlocks, whereElse } from "../documents/blocks.ts";
import { findKubectl } from "../manifests/find-kubectl.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService } from "./objects.ts";
import { until } from "./until.ts";

const own = readBlocks().flatMap(({ place, path, commands }) => {
  const typed = commands.filter((one) => whereElse(path, one)?.test === "test/cluster/documents.nightly.test.ts");
  return typed.length === 0 ? [] : [{ place, commands: typed }];
});

const kubectl = await findKubectl();

await describeCluster("commands of the documents about a cluster", {}, (cluster) => {
  test.each(own)("$place works as typed", { timeout: 120_000 }, async ({ commands }) => {
    if (kubectl === undefined) throw new Error("no kubectl, and it cannot be built");
    const { api, folder, kubeconfig } = cluster();
    await createNode(api, "n1").catch(() => undefined);
    await createService(api, { name: "web", labels: { app: "web" } }).catch(() => undefined);
    // The cluster removes its folder.
    const cwd = mkdtempSync(join(folder, "clone-"));
    for (const name of readdirSync(".")) symlinkSync(resolve(name), join(cwd, name));
    const env = {
      ...process.env,
      PATH: [resolve("node_modules/.bin"), dirname(kubectl), process.env.PATH].join(":"),
      KUBECONFIG: kubeconfig("admin"),
      // The default port may be taken on this machine.
      KPNG_LISTEN: `unix://${join(cwd, "api.sock")}`,
    };
    const run = (command: string): void => {
      const { status, stdout, stderr } = spawnSync("bash", ["-ec", command], { cwd, env, encoding: "utf8" });
      expect(status, `${command}\n${stdout}${stderr}`).toBe(0);
    };
    run(`kpng certificates serving --name watcher; cd kpng-certificates; cp ca.crt ..
      for one in key crt; do cp serving.$one ../tls.$one; done`);
    for (const command of commands) {
      if (!/\bto-api\b/.test(command)) run(command);
      else await serves(command.replaceAll(/:9\d{3}\b/g, "127.0.0.1:0").replace("tcp://:12090", "tcp://127.0.0.1:0"));
    }

    /** Runs a command until it has listed the cluster, and interrupts it, as a terminal does: the process group. */
    async function serves(command: string): Promise<void> {
      const child = spawn("bash", ["-ec", command], { cwd, env, detached: true });
      const ended = once(child, "close");
      let said = "";
      child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
      await until(`${command} serves`, () => said.includes('"msg":"listening"') || child.exitCode !== null);
      expect(child.exitCode, said).toBeNull();
      process.kill(-(child.pid ?? 0), "SIGINT");
      await ended;
    }
  });
});
