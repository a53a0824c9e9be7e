import { textOption } from "@kpng/process/options.ts";
import { replaySource } from "@kpng/source/replay/replay-source.ts";
import { InvalidArgumentError } from "commander";
import type { SourceCommand } from "./source-command.ts";

/** `kpng replay`: plays a recording of `kpng record`, as if its changes came from a cluster. */
export const sourceCommand: SourceCommand = {
  name: "replay",
  options: [
    textOption("-i, --input <file>", "recording to replay", "kpng-recording.jsonl.gz"),
    {
      flags: "--speed <factor>",
      description: "speed, as a multiple of real time; 0 for everything at once (default: 1; 0 for get and explain)",
      parse: (text) => {
        const speed = Number(text);
        if (text.trim() !== "" && speed >= 0 && speed <= 1_000_000) return speed;
        throw new InvalidArgumentError("expected a number from 0 to 1000000");
      },
    },
  ],
  examples: `
Examples:
  kpng replay -i problem.jsonl.gz --speed 10 to-api
  kpng replay -i problem.jsonl.gz explain --node n1 default/web
`,
  make: (options, sink, context) =>
    replaySource({
      path: options.input as string,
      // A query is answered from the state at the end of the recording.
      speed: (options.speed as number | undefined) ?? (options.isQuery === true ? 0 : 1),
      sink,
      ...context,
    }),
};
