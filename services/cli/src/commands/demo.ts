import { Command } from "commander";
import { createPrint } from "../demo/print.ts";
import { runDemo } from "../demo/run-demo.ts";

/** `kpng demo`: as `npm run demo`, without the setting up. */
export function makeDemo(signal: AbortSignal): Command {
  return new Command("demo")
    .description("send real packets through an example, in namespaces of its own")
    .action(async () => {
      const isColoured = process.stdout.isTTY === true && process.env.NO_COLOR === undefined;
      process.exitCode = await runDemo(
        createPrint((text) => process.stdout.write(text), isColoured),
        signal,
      );
    });
}
