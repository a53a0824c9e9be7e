import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { waitForSocket } from "@kpng/laboratory/laboratory.ts";
import { type Program, programFile } from "../../process/program-file.ts";
import { nodes, together } from "../../scenario/build.ts";
import type { State } from "../../scenario/manifest.ts";
import type { Settings } from "../../scenario/scenario.ts";
import type { Backend, RunningBackend } from "../backends.ts";
import { mountBpf, NodeCgroup } from "../laboratory/bpf.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { flushNat, flushServices } from "../rules.ts";
import { nftablesOptions, proxyOptions } from "./kube-proxy.ts";
import { Marker } from "./marker.ts";
import { NodeProcess } from "./node-process.ts";

/**
 * Time limit for a backend to reconnect to a watcher that was down. It exceeds the longest retry delay, 30 s, which a
 * slow start of the watcher may cause.
 */
const reconnectMs = Number(process.env.KPNG_PATIENCE_MS ?? 60_000);

const proxyNameLabel = "service.kubernetes.io/service-proxy-name";

/** A proxy of ours, with control of its watcher. */
export type KpngProxy = RunningBackend & {
  /** Restarts the watcher: the backend receives a whole view and runs a full sync. */
  restartWatcher(): Promise<void>;
};

/** One of our proxies. */
interface ProxyProgram {
  readonly proxy: Backend["proxy"];
  readonly program: Program;
  /** The option with the shortest time between two syncs. */
  readonly minSyncPeriod: string;
  readonly settingsOptions: (settings: Settings) => readonly string[];
  readonly loseRules: (world: TwoNodes) => Promise<unknown>;
  /** See {@link Marker}. Default false. */
  readonly hasSockets?: boolean;
}

/** Differences between several instances on the node. */
interface InstanceOptions {
  /** Name of its files. Default "kpng". */
  readonly name?: string | undefined;
  /** Proxy name of the Services that it serves. Default: Services without one. */
  readonly serviceProxyName?: string | undefined;
  readonly firstMarkerPort?: number | undefined;
  /** Additional options of the backend. */
  readonly args?: readonly string[] | undefined;
}

/** Starts one of our proxies on n1, and a watcher that reads the state from a file. They share only a unix socket. */
async function kpngProxy(world: TwoNodes, proxy: ProxyProgram, instance: InstanceOptions = {}): Promise<KpngProxy> {
  const { laboratory } = world;
  const { name = "kpng", serviceProxyName = "", firstMarkerPort, args = [] } = instance;
  const folder = join(laboratory.folder, `${name}-manifests`);
  const socket = join(laboratory.folder, `${name}.sock`);
  const labels: Record<string, string> = serviceProxyName === "" ? {} : { [proxyNameLabel]: serviceProxyName };
  const whose = serviceProxyName === "" ? [] : ["--service-proxy-name", serviceProxyName];
  const marker = new Marker(world, firstMarkerPort, labels, proxy);
  const backend = new NodeProcess(laboratory);
  let last: State = { services: [], slices: [] };
  let present: Settings = {};

  await mkdir(folder);
  await write({ services: [], slices: [] });
  let said = "";
  let watcher = await startWatcher();

  async function startWatcher(): Promise<ChildProcess> {
    const to = ["to-api", "--listen", `unix://${socket}`, ...whose];
    const child = laboratory.start("lan", [process.execPath, programFile("cli"), "file", "-i", folder, ...to]);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data) => {
        said = (said + String(data)).slice(-10_000);
      });
    }
    await waitForSocket(child, socket);
    return child;
  }

  /** Replaces the state file atomically: the watcher reads the whole new state or the whole old one. */
  async function write(state: State): Promise<void> {
    const items = [...nodes, ...state.services, ...state.slices];
    const path = join(laboratory.folder, `${name}-state.json`);
    await writeFile(path, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await rename(path, join(folder, "state.json"));
  }

  const log = () => `${backend.log()}\n${said.trimEnd().split("\n").slice(-10).join("\n")}`;

  async function apply(state: State, timeoutMs?: number): Promise<void> {
    last = state;
    await write(together(state, marker.next()));
    await marker.wait(log, timeoutMs);
  }

  const run = (settings: Settings) =>
    backend.start([
      process.execPath,
      programFile(proxy.program),
      ...["--api", `unix://${socket}`, "--node-name", "n1", proxy.minSyncPeriod, "0s"],
      // Short first delays between retries, to save time.
      ...["--error-delay", "100ms"],
      ...["--state-dir", "none", ...whose, ...proxy.settingsOptions(settings), ...args],
    ]);

  return {
    proxy: proxy.proxy,
    loseRules: async () => void (await proxy.loseRules(world)),
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
    cleanUp: () => laboratory.run("n1", [process.execPath, programFile(proxy.program), "--cleanup", ...whose]),
    log,
    close: async () => {
      await backend.stop();
      watcher.kill();
    },
  };
}

/** Returns a function that starts a proxy on n1, with a watcher. */
const starter =
  (proxy: ProxyProgram) =>
  (world: TwoNodes, instance?: InstanceOptions): Promise<KpngProxy> =>
    kpngProxy(world, proxy, instance);

export const kpngIptables = starter({
  proxy: "iptables",
  program: "backend-iptables",
  minSyncPeriod: "--iptables-min-sync-period",
  loseRules: flushNat,
  settingsOptions: proxyOptions,
});

/** Node ports are served on all addresses, as the scenarios expect. */
export const kpngNft = starter({
  proxy: "nft",
  program: "backend-nft",
  minSyncPeriod: "--nftables-min-sync-period",
  loseRules: (world) => flushServices(world, "kpng"),
  settingsOptions: nftablesOptions,
});

/** It needs a kernel with IPVS, as that of a guest. */
export const kpngIpvs = starter({
  proxy: "ipvs",
  program: "backend-ipvs",
  minSyncPeriod: "--ipvs-min-sync-period",
  loseRules: flushNat,
  settingsOptions: proxyOptions,
});

export const kpngUserspace = starter({
  proxy: "userspace",
  program: "backend-userspace",
  minSyncPeriod: "--nftables-min-sync-period",
  loseRules: ({ laboratory }) => laboratory.run("n1", ["nft", "delete", "table", "ip", "kpng-user"]),
  settingsOptions: nftablesOptions,
});

/** kpng-ebpf, with the places that it serves and uses. */
export type KpngEbpf = KpngProxy & {
  /** Folder of the cgroup with the processes of n1 and its pods. */
  readonly cgroup: string;
  /** Folder of the BPF file system, as the laboratory sees it. */
  readonly bpfFolder: string;
};

/**
 * Starts kpng-ebpf on n1, with a watcher. It serves the sockets of a cgroup of its own. Options that a test adds to
 * `instance.args` are in effect from the next start.
 */
export async function kpngEbpf(world: TwoNodes, instance: InstanceOptions = {}): Promise<KpngEbpf> {
  const { laboratory } = world;
  const { args = [] } = instance;
  const bpfFolder = await mountBpf(laboratory, "n1");
  const cgroup = NodeCgroup.open(world);
  const proxy: ProxyProgram = {
    proxy: args.includes("all") ? "ebpf-all" : "ebpf",
    program: "backend-ebpf",
    hasSockets: true,
    minSyncPeriod: "--nftables-min-sync-period",
    loseRules: () => laboratory.run("n1", ["rm", "-r", join(bpfFolder, "kpng-ebpf")]),
    settingsOptions: ({ localhostNodePorts = true, ...settings }) => [
      ...["--bpf-folder", bpfFolder, "--cgroup", cgroup.folder],
      ...proxyOptions(settings),
      ...(localhostNodePorts ? [] : ["--iptables-localhost-nodeports=false"]),
    ],
  };
  const running = await kpngProxy(world, proxy, instance);
  return {
    ...running,
    cgroup: cgroup.folder,
    bpfFolder,
    start: async (settings, state) => {
      await running.start(settings, state);
      // Programs may just have been attached, after the rules: the next state shows that they serve.
      await running.apply(state);
    },
    cleanUp: () =>
      laboratory.run("n1", [process.execPath, programFile("backend-ebpf"), "--cleanup", "--bpf-folder", bpfFolder]),
    close: async () => {
      await running.close();
      cgroup[Symbol.dispose]();
    },
  };
}
