import { type OptionSpec, parseDurationMs, parseWholeNumber } from "@kpng/process/options.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

/** kube-proxy's flags for the kernel's table of flows, with its defaults. */
export const conntrackOptions: readonly OptionSpec[] = [
  {
    flags: "--conntrack-max-per-core <count>",
    description: "room for so many flows per CPU, at most 1 048 576 in all; 0 to leave it as it is",
    default: 32_768,
    parse: parseWholeNumber("--conntrack-max-per-core", 0, 2 ** 31 - 1),
  },
  {
    flags: "--conntrack-min <count>",
    description: "room for so many flows at least, whatever the number of CPUs",
    default: 131_072,
    parse: parseWholeNumber("--conntrack-min", 0, 2 ** 31 - 1),
  },
  {
    flags: "--conntrack-tcp-timeout-established <duration>",
    description: "how long an idle TCP connection is remembered; 0 to leave it as it is",
    default: 86_400_000,
    parse: parseDurationMs,
  },
  {
    flags: "--conntrack-tcp-timeout-close-wait <duration>",
    description: "how long a TCP connection that one side closed is remembered; 0 to leave it as it is",
    default: 3_600_000,
    parse: parseDurationMs,
  },
  {
    flags: "--conntrack-tcp-be-liberal",
    description: "let packets outside the TCP window pass as part of their connection",
  },
  {
    flags: "--conntrack-udp-timeout <duration>",
    description: "how long a UDP flow without answer is remembered; 0 to leave it as it is",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--conntrack-udp-timeout-stream <duration>",
    description: "how long a UDP flow with answers is remembered; 0 to leave it as it is",
    default: 0,
    parse: parseDurationMs,
  },
];

const folder = "net/netfilter";

/** One setting of the kernel. */
export interface KernelSetting {
  /** *Shape:* `net/netfilter/nf_conntrack_max`. */
  readonly name: string;
  readonly value: number;
  /** True if a value that is larger already stays: there is only one such limit for all who need it. */
  readonly isMinimum: boolean;
}

/** Most flows that are asked for by the number of CPUs. Each takes about 320 bytes of the kernel's memory. */
const maxScaled = 1_048_576;

/**
 * Returns what {@link conntrackOptions} ask of the kernel on a machine with so many CPUs.
 *
 * *Source:* kube-proxy `conntrack/sysctls.go`. Pure.
 */
export function wantedSettings(options: ParsedOptions, cpuCount: number): readonly KernelSetting[] {
  const seconds = (name: string): number => Math.floor(Number(options[name] ?? 0) / 1_000);
  const exact = (name: string, value: number): KernelSetting => ({
    name: `${folder}/${name}`,
    value,
    isMinimum: false,
  });
  const perCore = Number(options.conntrackMaxPerCore ?? 0);
  const max = perCore === 0 ? 0 : Math.max(Math.min(perCore * cpuCount, maxScaled), Number(options.conntrackMin ?? 0));
  const settings: readonly KernelSetting[] = [
    { name: `${folder}/nf_conntrack_max`, value: max, isMinimum: true },
    exact("nf_conntrack_tcp_timeout_established", seconds("conntrackTcpTimeoutEstablished")),
    exact("nf_conntrack_tcp_timeout_close_wait", seconds("conntrackTcpTimeoutCloseWait")),
    exact("nf_conntrack_tcp_be_liberal", options.conntrackTcpBeLiberal === true ? 1 : 0),
    exact("nf_conntrack_udp_timeout", seconds("conntrackUdpTimeout")),
    exact("nf_conntrack_udp_timeout_stream", seconds("conntrackUdpTimeoutStream")),
  ];
  return settings.filter(({ value }) => value > 0);
}
