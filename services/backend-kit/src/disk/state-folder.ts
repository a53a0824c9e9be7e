import { accessSync, constants, mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { type OptionSpec, parseDurationMs } from "@kpng/process/options.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

/** Options of a backend that keeps its last view on disk. */
export const stateOptions: readonly OptionSpec[] = [
  {
    flags: "--state-dir <folder>",
    description:
      "keep the last view there, for a start without watcher; `none` for not at all (default: /var/lib/kpng/NAME)",
  },
  {
    flags: "--state-max-age <duration>",
    description: "do not use a view that was last current longer ago",
    default: 24 * 3_600_000,
    parse: parseDurationMs,
  },
];

/** Where a backend keeps things, and how old they may be. */
export interface StateOptions {
  /** Undefined for nowhere. */
  readonly folder: string | undefined;
  readonly maxAgeMs: number;
}

/**
 * Reads {@link stateOptions}: the folder that is asked for, else /var/lib/kpng/NAME if it can be had, else none, which
 * is said. A folder that was asked for is used even if it cannot be written to now: that is said at each change.
 */
export function readStateOptions(name: string, options: ParsedOptions, log: Log, root = "/var/lib/kpng"): StateOptions {
  const maxAgeMs = Number(options.stateMaxAge ?? 24 * 3_600_000);
  const asked = typeof options.stateDir === "string" ? options.stateDir : undefined;
  if (asked === "none" || asked === "") return { folder: undefined, maxAgeMs };
  if (asked !== undefined) return { folder: asked, maxAgeMs };
  const folder = join(root, name);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    accessSync(folder, constants.W_OK);
  } catch (error) {
    log.info("no view on disk", { folder, reason: reasonOf(error) });
    return { folder: undefined, maxAgeMs };
  }
  return { folder, maxAgeMs };
}
