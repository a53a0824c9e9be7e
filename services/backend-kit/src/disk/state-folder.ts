import { accessSync, constants, mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { type OptionSpec, parseDurationMs } from "@kpng/process/options.ts";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";

/**
 * Command-line options of backends that save their last view on disk (`BackendCommand.keepsState`). `proxyBackend` adds
 * them to each service proxy. Separate from `backend-options.ts`, because other backends save nothing.
 */
export const stateOptions: readonly OptionSpec[] = [
  {
    flags: "--state-dir <folder>",
    description:
      "folder for the last view, used at a start without a watcher; `none` to save nothing (default: /var/lib/kpng/NAME)",
  },
  {
    flags: "--state-max-age <duration>",
    description: "maximum age of a saved view that is used at a start",
    default: 24 * 3_600_000,
    parse: parseDurationMs,
  },
];

/** Parsed {@link stateOptions}. */
export interface StateOptions {
  /** Folder of the saved view and of the known watchers; undefined to save nothing. */
  readonly folder: string | undefined;
  /** Maximum age of a saved view that is used, in milliseconds. */
  readonly maxAgeMs: number;
}

/**
 * Parses {@link stateOptions}. Without `--state-dir`, the folder is /var/lib/kpng/NAME if it is writable; otherwise
 * nothing is saved, and a log line says so. A folder given by the option is always used, even if it is not writable
 * now: each save tries again and logs its errors. Called by `prepareBackend`, and by `proxyBackend` in a process with
 * several backends.
 */
export function readStateOptions(name: string, options: ParsedOptions, log: Log): StateOptions {
  const maxAgeMs = Number(options.stateMaxAge ?? 24 * 3_600_000);
  const asked = textOption(options, "stateDir");
  if (asked === "none" || asked === "") return { folder: undefined, maxAgeMs };
  if (asked !== undefined) return { folder: asked, maxAgeMs };
  const folder = join("/var/lib/kpng", name);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    accessSync(folder, constants.W_OK);
  } catch (error) {
    log.info("default state folder not writable: the view is not saved", { folder, reason: reasonOf(error) });
    return { folder: undefined, maxAgeMs };
  }
  return { folder, maxAgeMs };
}
