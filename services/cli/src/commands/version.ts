import { addOptions, type OptionSpec } from "@kpng/process/options.ts";
import { formatVersion } from "@kpng/process/run/version.ts";
import { Command, InvalidArgumentError } from "commander";
import packageJson from "../../package.json" with { type: "json" };

/** Output of `kpng --version`, which `makeKpng` sets. */
export const versionText = formatVersion("kpng", packageJson.version);

const outputOption: OptionSpec = {
  flags: "-o, --output <format>",
  description: "text or json",
  default: "text",
  // KPNG_OUTPUT is the file of to-file.
  env: "KPNG_OUTPUT_FORMAT",
  parse: (text) => {
    if (text !== "text" && text !== "json") throw new InvalidArgumentError("expected text or json");
    return text;
  },
};

/**
 * `kpng version`: prints the version as text or JSON. `makeKpng` adds it; unlike `kpng --version`, it can print JSON.
 */
export function makeVersion(): Command {
  return addOptions(new Command("version"), [outputOption])
    .description("print the version")
    .action((options: { readonly output: string }) => {
      const version = {
        version: packageJson.version,
        nodejs: process.version,
        platform: `${process.platform}/${process.arch}`,
      };
      const text = options.output === "json" ? JSON.stringify(version) : versionText;
      process.stdout.write(`${text}\n`);
    });
}
