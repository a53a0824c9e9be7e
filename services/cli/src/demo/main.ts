import { printToStdout } from "./print.ts";
import { runDemo } from "./run-demo.ts";

// `npm run demo`. Unlike `kpng demo` it cleans up after a second signal too: npm repeats the Ctrl-C of a terminal.

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => stop.abort());

try {
  process.exit(await runDemo(printToStdout(), stop.signal));
} catch (error) {
  process.stderr.write(`kpng demo failed: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
