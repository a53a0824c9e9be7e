import { execFileSync, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { expect, test } from "vitest";
import { readBlocks, whereElse } from "../documents/blocks.ts";
import { findKubectl } from "../manifests/find-kubectl.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService } from "./objects.ts";

// The commands of the documents that read a cluster of the reader's: typed against a real API server.

const own = readBlocks().flatMap(({ place, path, commands }) => {
  const typed = commands.filter((one) => whereElse(path, one)?.test === "test/cluster/documents.nightly.test.ts");
  return typed.length === 0 ? [] : [{ place, commands: typed }];
});

await describeCluster("commands of the documents about a cluster", {}, (cluster) => {
  test.each(own)("$place works as typed", { timeout: 120_000 }, async ({ commands }) => {
    const kubectl = await findKubectl();
    if (kubectl === undefined) throw new Error("no kubectl, and it cannot be built");
    const { api, folder, kubeconfig } = cluster();
    await createNode(api, "n1").catch(() => undefined);
    await createService(api, { name: "web", labels: { app: "web" } }).catch(() => undefined);
    const clone = mkdtempSync(join(folder, "clone-"));
    for (const name of readdirSync(".")) symlinkSync(resolve(name), join(clone, name));
    const env = {
      ...process.env,
      PATH: [resolve("node_modules/.bin"), dirname(kubectl), process.env.PATH].join(":"),
      KUBECONFIG: kubeconfig("admin"),
      // The default port may be taken on this machine.
      KPNG_LISTEN: `unix://${join(clone, "api.sock")}`,
    };
    const certificates = "kpng certificates serving --name watcher && cd kpng-certificates && cp ca.crt ..";
    const copies = "cp serving.key ../tls.key && cp serving.crt ../tls.crt";
    if (commands.some((command) => command.includes("tls.key")))
      execFileSync("bash", ["-ec", `${certificates} && ${copies}`], { cwd: clone, env, stdio: "pipe" });
    for (const command of commands) {
      // The ports may be taken on this machine.
      const free = command.replaceAll(/:9\d{3}\b/g, "127.0.0.1:0").replace("tcp://:12090", "tcp://127.0.0.1:0");
      if (/\bto-api\b/.test(command)) await serves(free, clone, env);
      else {
        const { status, stdout, stderr } = spawnSync("bash", ["-ec", command], { cwd: clone, env, encoding: "utf8" });
        expect(status, `${command}\n${stdout}${stderr}`).toBe(0);
      }
    }
    rmSync(clone, { recursive: true });
  });
});

/** Starts a command that serves, and resolves when it has listed the cluster and has ended after an interrupt. */
async function serves(command: string, cwd: string, env: NodeJS.ProcessEnv): Promise<void> {
  const child = spawn("bash", ["-ec", command], { cwd, env, detached: true });
  let said = "";
  const listed = new Promise<void>((done, fail) => {
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      if (said.includes('"msg":"listening"')) done();
    });
    child.once("close", () => fail(new Error(`${command} has ended: ${said}`)));
  });
  await listed;
  const ended = new Promise<number | null>((done) => child.once("close", done));
  // As a terminal does: to the whole process group.
  if (child.pid !== undefined) process.kill(-child.pid, "SIGINT");
  await ended;
}
