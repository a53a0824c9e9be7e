import { join } from "node:path";
import { programFile } from "../../process/program-file.ts";
import { mountBpf, NodeCgroup } from "../laboratory/bpf.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { type InstanceOptions, type KpngProxy, kpngProxy, type ProxyProgram } from "./kpng-proxy.ts";
import { proxyOptions } from "./kube-proxy.ts";

const program = programFile("backend-ebpf");

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
    program,
    hasSockets: true,
    minSyncPeriod: "--ebpf-min-sync-period",
    loseRules: async () => {
      await laboratory.run("n1", ["rm", "-r", join(bpfFolder, "kpng-ebpf")]);
    },
    settingsOptions: ({ localhostNodePorts = true, ...settings }) => [
      ...["--bpf-folder", bpfFolder, "--cgroup", cgroup.folder],
      ...proxyOptions(settings),
      ...(localhostNodePorts ? [] : ["--localhost-nodeports=false"]),
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
    cleanUp: () => laboratory.run("n1", [process.execPath, program, "--cleanup", "--bpf-folder", bpfFolder]),
    close: async () => {
      await running.close();
      cgroup[Symbol.dispose]();
    },
  };
}
