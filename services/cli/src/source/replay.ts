import { parseDurationMs, parseSomeText } from "@kpng/process/options.ts";
import { replaySource } from "@kpng/watcher/source/replay/replay-source.ts";
import { InvalidArgumentError } from "commander";
import type { SourceCommand } from "./source-command.ts";

/** `kpng replay`. */
export const replayCommand: SourceCommand = {
  name: "replay",
  description: "serve what kpng record has written, as it happened",
  options: [
    {
      flags: "-i, --input <file>",
      description: "the recording",
      default: "kpng-recording.jsonl.gz",
      parse: parseSomeText,
    },
    {
      flags: "--speed <factor>",
      description: "how many times as fast as it happened; 0 for all at once (default: 1; 0 for get and explain)",
      parse: (text) => {
        const speed = Number(text);
        if (text.trim() !== "" && speed >= 0 && speed <= 1_000_000) return speed;
        throw new InvalidArgumentError("the speed is a number from 0 to 1000000");
      },
    },
    {
      flags: "--until <duration>",
      description: "stop at this time after the recording's beginning (default: at its end)",
      parse: parseDurationMs,
    },
  ],
  examples: `
Examples:
  kpng replay -i problem.jsonl.gz --speed 10 to-api
  kpng replay -i problem.jsonl.gz --until 30s explain --node n1 default/web
`,
  make: (options, sink, context) =>
    replaySource({
      path: options.input as string,
      // A question is about the end of the recording, or what --until says.
      speed: (options.speed as number | undefined) ?? (options.isAsked === true ? 0 : 1),
      untilMs: options.until as number | undefined,
      sink,
      ...context,
    }),
};
