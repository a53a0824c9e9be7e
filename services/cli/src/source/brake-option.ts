import type { BrakeOptions } from "@kpng/model/brake.ts";
import { type OptionSpec, parseDurationMs } from "@kpng/process/options.ts";
import type { Options } from "../context/command-context.ts";

/**
 * The option of a source that limits how long suspicious deletions are held; `defaultMs` depends on the source.
 * `makeSource` adds it to every source. Separate from the sources, because it applies to all of them.
 */
export function brakeOption(defaultMs: number): OptionSpec {
  return {
    flags: "--brake-hold <duration>",
    description:
      "if a list would delete 90 % of a kind (10 objects or more), hold these deletions until a later list confirms " +
      "them, at most this long (0: delete at once)",
    parse: parseDurationMs,
    default: defaultMs,
  };
}

/** The value of {@link brakeOption}. */
export function readBrake(options: Options): BrakeOptions {
  return { holdMs: options.brakeHold as number };
}
