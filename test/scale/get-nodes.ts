import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { freePorts } from "../cluster/ports.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { bundled, startCalled } from "./processes.ts";
import type { PhaseTurns } from "./slices/turn-probe.ts";
import { watcherEnvironment } from "./watcher-environment.ts";

/**
 * Measures what a list of all nodes costs: the CPU time and the duration of `kpng get nodes`, bundled as in a release,
 * and the longest turns of the watcher's event loop meanwhile. CPU times are comparable on a busy machine. Separate
 * from `slices`, which measures every phase of a watcher with fewer nodes.
 */
const { values } = parseArgs({
  options: {
    nodes: { type: "string", default: "5000" },
    services: { type: "string", default: "5000" },
    /** Number of the nodes that have a stream. */
    streams: { type: "string", default: "1000" },
    turns: { type: "string", default: "5" },
  },
});

const [nodes, services, streams] = [Number(values.nodes), Number(values.services), Number(values.streams)];
const folder = mkdtempSync(join(tmpdir(), "kpng-get-nodes-"));

function writeCluster(path: string): void {
  const items: object[] = [];
  for (let index = 0; index < nodes; index += 1) {
    const labels = { "topology.kubernetes.io/zone": `zone-${index % 3}` };
    items.push({ apiVersion: "v1", kind: "Node", metadata: { name: `node-${index}`, labels } });
  }
  for (let index = 0; index < services; index += 1) {
    const clusterIP = `172.${16 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
    const spec = { clusterIP, clusterIPs: [clusterIP], ports: [{ port: 80, targetPort: 8080, protocol: "TCP" }] };
    items.push({ apiVersion: "v1", kind: "Service", metadata: { name: `s-${index}`, namespace: "default" }, spec });
    const labels = { "kubernetes.io/service-name": `s-${index}` };
    items.push({
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
      metadata: { name: `s-${index}-1`, namespace: "default", labels },
      ports: [{ name: "", port: 8080, protocol: "TCP" }],
      endpoints: [{ addresses: [`10.${index >> 8}.${index & 255}.1`], nodeName: `node-${index % nodes}` }],
    });
  }
  writeFileSync(path, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
}

const state = join(folder, "state.yaml");
writeCluster(state);
const [port = 0] = await freePorts(1);
const address = `127.0.0.1:${port}`;
const program = [bundled("kpng"), "file", "-i", state, "to-api", "--listen", `tcp://${address}`];
const watcher = spawn(process.execPath, ["--import", bundled("turn-probe"), ...program], {
  stdio: ["ignore", "ignore", "pipe", "ipc"],
  env: watcherEnvironment(),
});
let said = "";
watcher.stderr?.setEncoding("utf8").on("data", (text: string) => {
  said += text;
});
const load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");

async function longestTurns(): Promise<string> {
  watcher.send("mark");
  const [turns] = (await once(watcher, "message")) as [PhaseTurns];
  return turns.longestMs.map((ms) => ms.toFixed(0)).join(", ");
}

try {
  while (!said.includes('"msg":"input read"')) {
    if (watcher.exitCode !== null) throw new Error(said);
    await sleep(100);
  }
  if (streams > 0) {
    const options = { address, streams, firstNode: 0, isExtended: true };
    await load.call("open", { fleet: "nodes", options, timeoutMs: 300_000 });
  }
  await longestTurns();
  process.stdout.write(`${nodes} nodes, ${streams} of them with a stream, × ${services} Services; `);
  process.stdout.write(`load ${loadavg()[0]?.toFixed(1)}\n\n`);
  process.stdout.write("| rows | CPU of the command, ms | elapsed, ms | longest turns of the watcher, ms |\n");
  process.stdout.write("| --: | --: | --: | --- |\n");
  for (let turn = 0; turn < Number(values.turns); turn += 1) {
    const script = `TIMEFORMAT="%U %S %R"; time ${process.execPath} ${bundled("kpng")} get nodes --api ${address}`;
    const { stdout, stderr } = spawnSync("bash", ["-c", script], { encoding: "utf8", maxBuffer: 1e8 });
    const times =
      stderr
        .trim()
        .split("\n")
        .at(-1)
        ?.split(" ")
        .map((text) => Number(text) * 1_000) ?? [];
    const [user = 0, system = 0, elapsed = 0] = times;
    const cells = [stdout.split("\n").length - 2, (user + system).toFixed(0), elapsed.toFixed(0), await longestTurns()];
    process.stdout.write(`| ${cells.join(" | ")} |\n`);
  }
} finally {
  await load.stop();
  watcher.kill();
  await once(watcher, "exit");
  rmSync(folder, { recursive: true });
}
