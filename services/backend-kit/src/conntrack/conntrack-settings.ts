import { type Log, reasonOf } from "@kpng/process/log.ts";
import { type OptionSpec, parseDurationMs, parseWholeNumber } from "@kpng/process/options.ts";
import type { Sysctls } from "../sysctl/sysctls.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

const kubeProxyFlags: readonly OptionSpec[] = [
  {
    flags: "--conntrack-max-per-core <count>",
    description: "maximum number of flows per CPU, at most 1 048 576 in total; 0 to keep the kernel's limit",
    default: 32_768,
    parse: parseWholeNumber("--conntrack-max-per-core", 0, 2 ** 31 - 1),
  },
  {
    flags: "--conntrack-min <count>",
    description: "minimum of the limit on flows, whatever the number of CPUs",
    default: 131_072,
    parse: parseWholeNumber("--conntrack-min", 0, 2 ** 31 - 1),
  },
  {
    flags: "--conntrack-tcp-timeout-established <duration>",
    description: "timeout of idle TCP connections in conntrack; 0 to keep the kernel's value",
    default: 86_400_000,
    parse: parseDurationMs,
  },
  {
    flags: "--conntrack-tcp-timeout-close-wait <duration>",
    description: "timeout of TCP connections in CLOSE_WAIT in conntrack; 0 to keep the kernel's value",
    default: 3_600_000,
    parse: parseDurationMs,
  },
  {
    flags: "--conntrack-tcp-be-liberal",
    description: "accept packets outside the TCP window as part of their connection",
  },
  {
    flags: "--conntrack-udp-timeout <duration>",
    description: "timeout of unanswered UDP flows in conntrack; 0 to keep the kernel's value",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--conntrack-udp-timeout-stream <duration>",
    description: "timeout of answered UDP flows in conntrack; 0 to keep the kernel's value",
    default: 0,
    parse: parseDurationMs,
  },
];

/** kube-proxy's flags for the kernel's flow table (conntrack), with kube-proxy's defaults. */
export const conntrackOptions = kubeProxyFlags.map((option) => ({ ...option, isExpert: true }));

interface KernelSetting {
  /** *Shape:* `net/netfilter/nf_conntrack_max`, or an absolute path. */
  readonly name: string;
  readonly value: number;
  /** True if a larger value is kept, because other programs on the node share the limit. */
  readonly isMinimum?: boolean;
}

/**
 * Upper limit for `--conntrack-max-per-core` times the number of CPUs. Each flow takes about 320 bytes of kernel
 * memory.
 */
const maxOfAllCpus = 1_048_576;

/**
 * Returns the kernel settings that {@link conntrackOptions} ask for on a machine with `cpuCount` CPUs. The hash table
 * is sized at a quarter of the maximum number of flows.
 *
 * *Source:* kube-proxy `conntrack/sysctls.go`.
 */
export function desiredSettings(options: ParsedOptions, cpuCount: number): readonly KernelSetting[] {
  const seconds = (name: string): number => Math.floor(Number(options[name] ?? 0) / 1_000);
  const perCore = Number(options.conntrackMaxPerCore ?? 0);
  const max =
    perCore === 0 ? 0 : Math.max(Math.min(perCore * cpuCount, maxOfAllCpus), Number(options.conntrackMin ?? 0));
  const prefix = "net/netfilter/nf_conntrack_";
  const hashSize = "/sys/module/nf_conntrack/parameters/hashsize";
  const settings = [
    { name: `${prefix}max`, value: max, isMinimum: true },
    { name: hashSize, value: Math.floor(max / 4), isMinimum: true },
    { name: `${prefix}tcp_timeout_established`, value: seconds("conntrackTcpTimeoutEstablished") },
    { name: `${prefix}tcp_timeout_close_wait`, value: seconds("conntrackTcpTimeoutCloseWait") },
    { name: `${prefix}tcp_be_liberal`, value: options.conntrackTcpBeLiberal === true ? 1 : 0 },
    { name: `${prefix}udp_timeout`, value: seconds("conntrackUdpTimeout") },
    { name: `${prefix}udp_timeout_stream`, value: seconds("conntrackUdpTimeoutStream") },
  ];
  return settings.filter(({ value }) => value > 0);
}

/**
 * Writes the settings from `desiredSettings` that the kernel does not have yet.
 *
 * A setting that cannot be changed (because /proc is read-only, or this is not the initial network namespace) is
 * logged. Services work without it.
 */
export async function applySettings(settings: readonly KernelSetting[], sysctls: Sysctls, log: Log): Promise<void> {
  for (const { name, value, isMinimum } of settings) {
    const path = sysctls.pathOf(name);
    try {
      const before = await sysctls.ensure(name, value, isMinimum);
      if (before !== undefined) log.info("kernel setting changed", { path, before, value });
    } catch (error) {
      log.error("kernel setting not changed", { path, value, reason: reasonOf(error) });
    }
  }
}
