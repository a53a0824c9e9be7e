import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { until } from "@kpng/backend-userspace/testing/running-service.ts";
import { oneService } from "../process/one-service.ts";

// Restarts kpng-userspace with --handover in the network namespace of this process, while connections to a cluster IP
// begin without a pause, and prints what happened as JSON: `userspace-handover.ts FOLDER ENTRY`.

const [folder = "", entry = ""] = process.argv.slice(2);
const service = { host: "10.96.0.1", port: 80 };
const nodeAddress = "192.0.2.1";

function run(command: string): string {
  const { stdout, stderr, status } = spawnSync("sh", ["-c", command], { encoding: "utf8" });
  if (status !== 0) throw new Error(`${command}: ${stderr}`);
  return stdout.trim();
}

async function received(socket: Socket): Promise<string> {
  let text = "";
  for await (const data of socket) text += String(data);
  return text;
}

/** Asks the Service; returns the answer, or the error. */
function ask(limitMs = 30_000): Promise<string> {
  const socket = connect(service);
  socket.setTimeout(limitMs, () => socket.destroy(new Error("no answer")));
  socket.end("question");
  return received(socket).catch((error: unknown) => String(error));
}

run(`ip address add ${nodeAddress}/32 dev lo`);
// A packet to the cluster IP needs a route before it is redirected.
run(`ip route add default dev lo src ${nodeAddress}`);
const endpoint = createServer({ allowHalfOpen: true }, (socket) => {
  socket.on("error", () => undefined);
  socket.pipe(socket);
}).listen(0, nodeAddress);
await once(endpoint, "listening");
const state = join(folder, `${entry}.json`);
const { port } = endpoint.address() as AddressInfo;
writeFileSync(state, JSON.stringify(oneService(port, { addresses: [nodeAddress] })));
const start = (main: string, args: readonly string[]) =>
  startProgram(pathToFileURL(resolve(import.meta.dirname, "../..", main)), args);
const api = `unix://${join(folder, `${entry}.sock`)}`;
const watcher = start("services/cli/src/main.ts", ["file", "-i", state, "to-api", "--listen", api]);
const ports = ["--healthz-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0"];
const options = ["--api", api, "--node-name", "n1", "--state-dir", "none", "--error-delay", "50ms", ...ports];
const main = "services/backend-userspace/src/main.ts";
const program = start(main, ["--handover", "--entry", entry, ...options]);
let answer = "";
const deadlineMs = performance.now() + 40_000;
while (answer !== "question" && performance.now() < deadlineMs) answer = await ask(500);
if (answer !== "question") throw new Error(`${answer}\n${program.stderr()}\n${watcher.stderr()}`);
const old = connect(service);
old.write("before");
await once(old, "data");
const failures: string[] = [];
let [answered, isStopped] = [0, false];
const workers = Array.from({ length: 4 }, async () => {
  while (!isStopped) {
    const got = await ask();
    if (got === "question") answered++;
    else failures.push(got);
  }
});
const more = async (): Promise<void> => {
  const before = answered;
  await until("connections", () => answered > before + 20);
};
await more();
for (let restart = 1; restart <= 2; restart++) {
  program.signal("SIGUSR2");
  const count = (): number => program.stderr().split("another process serves now").length - 1;
  await until("the handover", () => count() === restart);
  await more();
}
old.write("after");
const [data] = await once(old, "data");
old.destroy();
await more();
isStopped = true;
await Promise.all(workers);
program.stop();
const status = await program.ended;
watcher.kill();
const left = run("nft list tables; ip -o link show | grep kpng-user || true");
process.stdout.write(`${JSON.stringify({ failures, answered, old: String(data), status, left })}\n`);
process.exit(0);
