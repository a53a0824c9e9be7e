import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { parseCidr } from "@kpng/model/address.ts";
import {
  type OptionSpec,
  parseDurationMs,
  parsePositiveDurationMs,
  parseWholeNumber,
  repeatable,
} from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { KernelSettings } from "./commit/prepare-kernel.ts";
import { isSchedulerName } from "./commit/schedulers.ts";

/**
 * Options of this backend alone; options that kube-proxy also has carry its names. `ipvsBackend` in `backend.ts` passes
 * them to `proxyBackend`. Separate from it, because they are long.
 */
export const ipvsOptions: readonly OptionSpec[] = [
  {
    flags: "--ipvs-scheduler <name>",
    description:
      "scheduler of virtual servers, unless a Service has its own: rr, wrr, lc, wlc, sh, mh or another one of the kernel",
    default: "rr",
    parse: schedulerName,
  },
  repeatable("--ipvs-exclude-cidrs <cidrs>", "addresses at which virtual servers of other programs are not taken over"),
  {
    flags: "--ipvs-masquerade-bit <bit>",
    description: "bit of the packet mark that requests masquerade, 0 to 23; may be kube-proxy's",
    default: 14,
    parse: parseWholeNumber("--ipvs-masquerade-bit", 0, 23),
  },
  {
    flags: "--ipvs-drain-timeout <duration>",
    description: "longest time that a removed endpoint keeps its connections; 0 for no limit",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--ipvs-strict-arp",
    description: "answer ARP only on the interface that has the address (arp_ignore=1, arp_announce=2)",
  },
  {
    flags: "--ipvs-tcp-timeout <duration>",
    description: "timeout of idle TCP connections; 0 keeps the kernel's",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--ipvs-tcpfin-timeout <duration>",
    description: "timeout of TCP connections after a FIN; 0 keeps the kernel's",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--ipvs-udp-timeout <duration>",
    description: "timeout of UDP flows; 0 keeps the kernel's",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--ipvs-timeout <duration>",
    description: "longest run of ipvsadm, ipset, ip or an iptables tool",
    default: 300_000,
    parse: parsePositiveDurationMs,
  },
];

interface IpvsSettings extends KernelSettings {
  readonly scheduler: string;
  /** In canonical form. */
  readonly excludedCIDRs: readonly string[];
  readonly masqueradeBit: number;
  readonly drainMs: number;
  readonly toolMs: number;
}

/** Returns the settings from parsed options. `makeProxy` in `backend.ts` calls it. Errors: BAD_OPTION. */
export function readIpvsSettings(options: ParsedOptions): IpvsSettings {
  return {
    scheduler: String(options.ipvsScheduler ?? "rr"),
    excludedCIDRs: parseExcludedCIDRs(options.ipvsExcludeCidrs),
    masqueradeBit: Number(options.ipvsMasqueradeBit ?? 14),
    drainMs: Number(options.ipvsDrainTimeout ?? 0),
    isStrictArp: options.ipvsStrictArp === true,
    timeouts: {
      tcpMs: Number(options.ipvsTcpTimeout ?? 0),
      tcpFinMs: Number(options.ipvsTcpfinTimeout ?? 0),
      udpMs: Number(options.ipvsUdpTimeout ?? 0),
    },
    toolMs: Number(options.ipvsTimeout ?? 300_000),
  };
}

function parseExcludedCIDRs(value: unknown): readonly string[] {
  return (Array.isArray(value) ? value.map(String) : []).map((text) => {
    const parsed = parseCidr(text);
    if (parsed !== undefined) return parsed.cidr;
    throw new ProcessError("BAD_OPTION", `--ipvs-exclude-cidrs "${text}" is not a CIDR: write 10.0.0.0/8 or fd00::/8`);
  });
}

function schedulerName(text: string): string {
  if (isSchedulerName(text)) return text;
  throw new InvalidArgumentError(`"${text}" is not the name of a scheduler: write rr, wrr, lc, wlc, sh or mh`);
}
