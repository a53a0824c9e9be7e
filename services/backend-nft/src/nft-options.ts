import { createHash } from "node:crypto";
import { oneOf } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import type { TableSettings } from "@kpng/nftables/commit/open-rule-sets.ts";
import { type OptionSpec, parsePositiveDurationMs } from "@kpng/process/options.ts";
import { InvalidArgumentError } from "commander";

/** Options of this backend alone. `backend.ts` adds them to those of every service proxy. */
export const nftOptions: readonly OptionSpec[] = [
  {
    flags: "--table-name <name>",
    description: "name of the tables, one per family (default: kpng, with a hash under --service-proxy-name)",
    parse: tableName,
  },
  {
    flags: "--nftables-masquerade-bit <bit>",
    description: "bit of the packet mark that requests masquerade, 0 to 31",
    default: 14,
    parse: integer("--nftables-masquerade-bit", 0, 31),
  },
  {
    flags: "--max-affinity-clients <count>",
    description: "most clients that are remembered for one Service port with affinity",
    default: 1_000_000,
    parse: integer("--max-affinity-clients", 1, 100_000_000),
  },
  {
    flags: "--elements-through <auto|netlink|nft>",
    description:
      "how elements are read and written: by netlink, by the program nft (slower), or auto: netlink if possible",
    default: "auto",
    parse: oneOf("--elements-through", ["auto", "netlink", "nft"]),
  },
  {
    flags: "--nft-timeout <duration>",
    description: "longest run of the program nft",
    default: 300_000,
    parse: parsePositiveDurationMs,
  },
];

/**
 * Returns the settings from parsed options. `makeProxy` in `backend.ts` calls it. Each instance has its own tables:
 * `kpng`, or `kpng-` and a hash of the service proxy name.
 */
export function readNftSettings(options: ParsedOptions, serviceProxyName: string): TableSettings {
  const through = options.elementsThrough;
  const hash = createHash("sha256").update(serviceProxyName).digest("hex").slice(0, 8);
  const standard = serviceProxyName === "" ? "kpng" : `kpng-${hash}`;
  return {
    table: typeof options.tableName === "string" ? options.tableName : standard,
    masqueradeBit: Number(options.nftablesMasqueradeBit ?? 14),
    maxClients: Number(options.maxAffinityClients ?? 1_000_000),
    timeoutMs: Number(options.nftTimeout ?? 300_000),
    elementsThrough: through === "netlink" || through === "nft" ? through : "auto",
  };
}

/** Parses the name of a table. Errors: InvalidArgumentError. */
function tableName(text: string): string {
  if (/^[A-Za-z][A-Za-z0-9_-]{0,63}$/.test(text)) return text;
  throw new InvalidArgumentError("a table name begins with a letter and contains letters, digits, - and _ only");
}

/** Returns a parser of whole numbers from `least` to `most`. */
function integer(flag: string, least: number, most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    throw new InvalidArgumentError(`${flag} is a whole number from ${least} to ${most}`);
  };
}
