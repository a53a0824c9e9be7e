import { styleText } from "node:util";
import type { OptionSpec } from "@kpng/process/options.ts";
import { InvalidArgumentError } from "commander";

/** Meaning of a colour. Every colour only repeats what the text says. */
export type CellStyle = "good" | "doubtful" | "bad" | "idle";

/** Adds the escape sequences of a style to a text that is already free of control characters. */
export type Paint = (text: string, style: CellStyle) => string;

/** `--color`. */
export const colorOption: OptionSpec = {
  flags: "--color <when>",
  description: "colours in tables: auto (on a terminal, unless NO_COLOR is set), always or never",
  default: "auto",
  parse: (text) => {
    if (text !== "auto" && text !== "always" && text !== "never")
      throw new InvalidArgumentError("expected auto, always or never");
    return text;
  },
};

const formats = { good: "green", doubtful: "yellow", bad: "red", idle: "gray" } as const;

/**
 * Returns the function that colours cells; undefined without colours. `auto` follows NO_COLOR, FORCE_COLOR and whether
 * standard output is a terminal. `readOutputOptions` and `kpng analyze` call it with the value of `--color`. Separate
 * from `output.ts`, because `kpng analyze` has colours but none of its formats.
 */
export function paintOf(when: unknown): Paint | undefined {
  const style = { stream: process.stdout, validateStream: when !== "always" };
  const isOn = when !== "never" && styleText("red", "x", style) !== "x";
  return isOn ? (text, style) => styleText(formats[style], text, { validateStream: false }) : undefined;
}
