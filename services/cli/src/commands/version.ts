import { Command } from "commander";
import packageJson from "../../package.json" with { type: "json" };

export function makeVersion(): Command {
  return new Command("version")
    .description("print the version")
    .option("-o, --output <format>", "text or json", "text")
    .action((options: { readonly output: string }) => {
      const version = {
        version: packageJson.version,
        nodejs: process.version,
        platform: `${process.platform}/${process.arch}`,
      };
      const text =
        options.output === "json"
          ? JSON.stringify(version)
          : `kpng ${version.version} (Node.js ${version.nodejs}, ${version.platform})`;
      process.stdout.write(`${text}\n`);
    });
}
