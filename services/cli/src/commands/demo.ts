import { Command } from "commander";
import { printToStdout } from "../demo/print.ts";
import { runDemo } from "../demo/run-demo.ts";

/**
 * `kpng demo`: runs the all-IP example with real packets. Only the command line is here; `demo/` contains the demo,
 * which also runs without it (`npm run demo`).
 */
export function makeDemo(signal: AbortSignal): Command {
  return new Command("demo")
    .description("run an example with real packets, in network namespaces of its own")
    .action(async () => {
      process.exitCode = await runDemo(printToStdout(), signal);
    });
}
