import { parseNonEmptyText } from "@kpng/process/options.ts";
import { stateFileSink } from "@kpng/watcher/state-file/state-file-sink.ts";
import type { SinkCommand } from "./sink-command.ts";

/**
 * `kpng SOURCE to-file`: writes the state to a file. `makeSource` adds it. Separate from `stateFileSink` of the
 * watcher, which writes: this file only reads the options.
 */
export const toFile: SinkCommand = {
  name: "to-file",
  description: "write the state to a file in KPNG's format, whenever it changes",
  options: [
    {
      flags: "-o, --output <file>",
      description: "file to write; - writes the state to standard output, once",
      default: "global-state.yaml",
      parse: parseNonEmptyText,
    },
    { flags: "--once", description: "exit when the first complete state is written" },
  ],
  examples: `
Examples:
  COMMAND -o global-state.yaml
  COMMAND -o - | gzip > state.yaml.gz
`,
  make: (options, store, context) =>
    stateFileSink({ store, path: options.output as string, isOnce: options.once === true, ...context }),
};
