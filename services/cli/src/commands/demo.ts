import { Command } from "commander";
import { printToStdout } from "../demo/print.ts";
import { runDemo } from "../demo/run-demo.ts";

/**
 * `kpng demo`: runs the all-IP example with real packets. `makeKpng` adds it. Separate from the folder `demo/`, because
 * the demo also runs without the command line (`npm run demo`).
 */
export function makeDemo(signal: AbortSignal): Command {
  return new Command("demo")
    .description("run an example with real packets, in network namespaces of its own")
    .action(async () => {
      process.exitCode = await runDemo(printToStdout(), signal);
    });
}
