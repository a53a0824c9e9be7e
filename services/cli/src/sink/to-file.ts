import { parseNonEmptyText } from "@kpng/process/options.ts";
import { stateFileSink } from "@kpng/watcher/state-file/state-file-sink.ts";
import type { SinkCommand } from "./sink-command.ts";

/** `kpng SOURCE to-file`: writes the state to a file. `makeSource` adds it; `stateFileSink` writes. */
export const toFile: SinkCommand = {
  name: "to-file",
  description: "write the state to a file in KPNG's format, whenever it changes",
  options: [
    {
      flags: "-o, --output <file>",
      description: "file to write",
      default: "global-state.yaml",
      parse: parseNonEmptyText,
    },
  ],
  examples: `
Examples:
  COMMAND -o global-state.yaml
`,
  make: (options, store, context) => stateFileSink({ store, path: options.output as string, ...context }),
};
