import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { waitForSocket } from "@kpng/laboratory/wait-for-socket.ts";
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

/**
 * How long a backend may take to come to a watcher that was away: longer than the longest time between two tries, 30 s.
 * They come less and less often while there is none, so after a slow start of the watcher the next one may be far off.
 */
const reconnectMs = 60_000;

const proxyNameLabel = "service.kubernetes.io/service-proxy-name";

/** Our backend, and what can happen to its watcher. */
export type KpngIptables = RunningBackend & {
  /** Ends the watcher and starts it again: the backend gets a whole view and looks at everything. */
  restartWatcher(): Promise<void>;
};

/** Why ours cannot run here; undefined if it can. */
export function whyNoKpngIptables(): string | undefined {
  return existsSync(backendMain) ? undefined : "services/backend-iptables has no main.ts yet";
}

/** How one of several instances on the node is told from the others. */
export interface InstanceOptions {
  /** A word for its files. Default "kpng". */
  readonly name?: string | undefined;
  /** The Services that it serves have this proxy's name. Default: those that name none. */
  readonly serviceProxyName?: string | undefined;
  readonly firstMarkerPort?: number | undefined;
  /** More options of the backend. */
  readonly args?: readonly string[] | undefined;
}

/** Our backend on n1, and a watcher that reads the state from a file; they share a unix socket only. */
export async function kpngIptables(world: TwoNodes, instance: InstanceOptions = {}): Promise<KpngIptables> {
  const { laboratory } = world;
  const { name = "kpng", serviceProxyName = "", firstMarkerPort, args = [] } = instance;
  const folder = join(laboratory.folder, `${name}-manifests`);
  const socket = join(laboratory.folder, `${name}.sock`);
  const labels: Record<string, string> = serviceProxyName === "" ? {} : { [proxyNameLabel]: serviceProxyName };
  const whose = serviceProxyName === "" ? [] : ["--service-proxy-name", serviceProxyName];
  const marker = new Marker(world, firstMarkerPort, labels);
  const backend = new NodeProcess(laboratory);
  let last: State = { services: [], slices: [] };
  let present: Settings = {};

  await mkdir(folder);
  await write({ services: [], slices: [] });
  let said = "";
  let watcher = await startWatcher();

  async function startWatcher(): Promise<ChildProcess> {
    const to = ["to-api", "--listen", `unix://${socket}`, ...whose];
    const child = laboratory.start("lan", [process.execPath, watcherMain, "file", "-i", folder, ...to]);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data) => {
        said = (said + String(data)).slice(-10_000);
      });
    }
    await waitForSocket(child, socket);
    return child;
  }

  /** One file for all, put in place at once: the watcher sees the whole new state or the whole old one. */
  async function write(state: State): Promise<void> {
    const items = [...nodes, ...state.services, ...state.slices];
    const path = join(laboratory.folder, `${name}-state.json`);
    await writeFile(path, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await rename(path, join(folder, "state.json"));
  }

  const log = () => `${backend.log()}\n${said}`;

  async function apply(state: State, timeoutMs?: number): Promise<void> {
    last = state;
    await write(together(state, marker.next()));
    await marker.wait(log, timeoutMs);
  }

  const run = (settings: Settings) =>
    backend.start([
      process.execPath,
      backendMain,
      ...["--api", `unix://${socket}`, "--node-name", "n1", "--iptables-min-sync-period", "0s"],
      // The first tries come soon after one another: what is tested is what comes after.
      ...["--error-delay", "100ms"],
      ...["--state-dir", "none", ...whose, ...proxyOptions(settings), ...args],
    ]);

  return {
    name: "kpng-iptables",
    start: async (settings, state) => {
      present = settings;
      await backend.stop();
      run(settings);
      await apply(state);
    },
    apply: (state) => apply(state),
    restart: async (signal) => {
      await backend.stop(signal);
      run(present);
      await apply(last);
    },
    restartWatcher: async () => {
      const ended = once(watcher, "close");
      watcher.kill();
      await ended;
      watcher = await startWatcher();
      await apply(last, reconnectMs);
    },
    stop: (signal) => backend.stop(signal),
    cleanUp: () => laboratory.run("n1", [process.execPath, backendMain, "--cleanup", ...whose]),
    log,
    close: async () => {
      await backend.stop();
      watcher.kill();
    },
  };
}
