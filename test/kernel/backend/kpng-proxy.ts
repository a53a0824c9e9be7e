import { readFileSync } from "node:fs";
import { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { WatcherStates } from "@kpng/laboratory/check/states.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { ProxyProfile, parseExceptions } from "@kpng/laboratory/scenario/deviations.ts";
import { type Program, programFile } from "../../process/program-file.ts";

/** Longest time from a state to its rules, in milliseconds; a guest is slower than its machine. */
export const patienceMs = Number(process.env.KPNG_PATIENCE_MS ?? 30_000);

const proxyNameLabel = "service.kubernetes.io/service-proxy-name";

/** One of our proxies, as options of `kpng conformance packets`. */
export interface OwnProxy {
  readonly command: readonly string[];
  readonly cleanup: string;
  readonly loseRules: string;
  /** File of exceptions. Default: none. */
  readonly exceptions?: string | undefined;
}

/** Differences between several instances on the node. */
interface InstanceOptions {
  /** Name of its files. Default "kpng". */
  readonly name?: string | undefined;
  /** Proxy name of the Services that it serves. Default: Services without one. */
  readonly serviceProxyName?: string | undefined;
  readonly firstMarkerPort?: number | undefined;
  /** Additional options of the backend. Those that a test adds later are in effect from the next start. */
  readonly args?: readonly string[] | undefined;
}

/** Returns a proxy of ours; `args` are the options that it needs everywhere. */
function own(program: Program, args: readonly string[], more: Omit<OwnProxy, "command" | "cleanup">): OwnProxy {
  const run = [process.execPath, programFile(program)];
  // Short first delays between retries, to save time.
  const usual = ["--error-delay", "100ms", "--state-dir", "none"];
  return {
    command: [...run, "--api", "{api}", "--node-name", "{node}", ...usual, ...args, "{options}"],
    cleanup: [...run, "--cleanup"].join(" "),
    ...more,
  };
}

/** Empties table nat. Without any rule that uses connection tracking, the kernel would stop translating back. */
export const flushNat = "iptables -t nat -F && ip6tables -t nat -F";

/**
 * Returns a command that empties the chain `services` of a table of kpng-nft or kube-proxy. The other chains stay:
 * without any rule that uses connection tracking, the kernel would stop tracking and translating back.
 */
export function flushServices(table: string): string {
  return ["ip", "ip6"].map((family) => `nft flush chain ${family} ${table} services`).join(" && ");
}

/** Our proxies, by their names in `kpng local to-NAME`. */
export const ownProxies = {
  iptables: own("backend-iptables", ["--iptables-min-sync-period", "0s"], {
    loseRules: flushNat,
    exceptions: "services/backend-iptables/packets.exceptions",
  }),
  nft: own("backend-nft", ["--nftables-min-sync-period", "0s"], {
    loseRules: flushServices("kpng"),
    exceptions: "services/backend-nft/packets.exceptions",
  }),
  // It needs a kernel with IPVS, as that of a guest.
  ipvs: own("backend-ipvs", ["--ipvs-min-sync-period", "0s"], {
    loseRules: flushNat,
    exceptions: "services/backend-ipvs/packets.exceptions",
  }),
  userspace: own("backend-userspace", ["--nftables-min-sync-period", "0s"], {
    loseRules: "nft delete table ip kpng-user",
    exceptions: "services/backend-userspace/packets.exceptions",
  }),
  // It serves the sockets of a cgroup of the laboratory.
  ebpf: own("backend-ebpf", ["--cgroup", "{cgroup}", "--nftables-min-sync-period", "0s"], {
    loseRules: "rm -r {bpf}/kpng-ebpf",
    exceptions: "services/backend-ebpf/packets.exceptions",
  }),
} as const satisfies Readonly<Record<string, OwnProxy>>;

/** Reads the exceptions of a proxy. */
export function profileOf({ exceptions }: Pick<OwnProxy, "exceptions">): ProxyProfile {
  if (exceptions === undefined) return ProxyProfile.kubeProxy;
  return new ProxyProfile(parseExceptions(readFileSync(exceptions, "utf8"), () => true));
}

/** Starts one of our proxies on n1, and a watcher that reads the state from a file. They share only a unix socket. */
async function start(proxy: OwnProxy, world: TwoNodes, instance: InstanceOptions = {}): Promise<CommandProxy> {
  const { name, serviceProxyName = "", firstMarkerPort, args = [] } = instance;
  const whose = serviceProxyName === "" ? [] : ["--service-proxy-name", serviceProxyName];
  const kpng = [process.execPath, programFile("cli")];
  const states = await WatcherStates.start(world.laboratory, { kpng, name, args: whose });
  return CommandProxy.open(world, states, {
    get command() {
      return [...proxy.command, ...whose, ...args];
    },
    cleanup: [proxy.cleanup, ...whose].join(" "),
    loseRules: proxy.loseRules,
    profile: profileOf(proxy),
    timeoutMs: patienceMs,
    firstMarkerPort,
    labels: serviceProxyName === "" ? {} : { [proxyNameLabel]: serviceProxyName },
  });
}

const starter =
  (proxy: OwnProxy) =>
  (world: TwoNodes, instance?: InstanceOptions): Promise<CommandProxy> =>
    start(proxy, world, instance);

export const kpngIptables = starter(ownProxies.iptables);
export const kpngNft = starter(ownProxies.nft);
export const kpngIpvs = starter(ownProxies.ipvs);
export const kpngUserspace = starter(ownProxies.userspace);
export const kpngEbpf = starter(ownProxies.ebpf);
