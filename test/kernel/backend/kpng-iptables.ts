import { existsSync } from "node:fs";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Running, untilListening } from "../../../services/cli/src/demo/processes.ts";
import { nodes, together } from "../../scenario/build.ts";
import type { State } from "../../scenario/manifest.ts";
import type { Settings } from "../../scenario/scenario.ts";
import type { RunningBackend } from "../backends.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { proxyOptions } from "./kube-proxy.ts";
import { Marker } from "./marker.ts";
import { NodeProcess } from "./node-process.ts";

const backendMain = fileURLToPath(new URL("../../../services/backend-iptables/src/main.ts", import.meta.url));
const watcherMain = fileURLToPath(new URL("../../../services/cli/src/main.ts", import.meta.url));

/** Why ours cannot run here; undefined if it can. */
export function whyNoKpngIptables(): string | undefined {
  return existsSync(backendMain) ? undefined : "services/backend-iptables has no main.ts yet";
}

/** Our backend on n1, and a watcher that reads the state from a file; they share a unix socket only. */
export async function kpngIptables(world: TwoNodes): Promise<RunningBackend> {
  const { laboratory } = world;
  const folder = join(laboratory.folder, "manifests");
  const socket = join(laboratory.folder, "proxy.sock");
  const marker = new Marker(world);
  const backend = new NodeProcess(laboratory);
  let last: State = { services: [], slices: [] };
  let present: Settings = {};

  await mkdir(folder);
  await write({ services: [], slices: [] });
  const watcher = laboratory.start("lan", [
    process.execPath,
    watcherMain,
    ...["file", "-i", folder, "to-api", "--listen", `unix://${socket}`],
  ]);
  let said = "";
  for (const stream of [watcher.stdout, watcher.stderr]) {
    stream?.on("data", (data) => {
      said = (said + String(data)).slice(-10_000);
    });
  }
  const running: Running = { child: watcher, shown: "kpng file to-api", output: () => said };
  await untilListening(running, socket);

  /** One file for all, put in place at once: the watcher sees the whole new state or the whole old one. */
  async function write(state: State): Promise<void> {
    const items = [...nodes, ...state.services, ...state.slices];
    const path = join(laboratory.folder, "state.json");
    await writeFile(path, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await rename(path, join(folder, "state.json"));
  }

  const log = () => `${backend.log()}\n${said}`;

  async function apply(state: State): Promise<void> {
    last = state;
    await write(together(state, marker.next()));
    await marker.wait(log);
  }

  const run = (settings: Settings) =>
    backend.start([
      process.execPath,
      backendMain,
      ...["--api", `unix://${socket}`, "--node-name", "n1", "--iptables-min-sync-period", "0s"],
      ...proxyOptions(settings),
    ]);

  return {
    name: "kpng-iptables",
    start: async (settings, state) => {
      present = settings;
      await backend.stop();
      run(settings);
      await apply(state);
    },
    apply,
    restart: async () => {
      await backend.stop();
      run(present);
      await apply(last);
    },
    stop: () => backend.stop(),
    log,
    close: async () => {
      await backend.stop();
      watcher.kill();
    },
  };
}
