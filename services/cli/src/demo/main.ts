import { createPrint } from "./print.ts";
import { runDemo } from "./run-demo.ts";

const stop = new AbortController();
// Ending takes a moment and may be asked for twice: npm passes on the Ctrl-C that this process has seen already.
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => stop.abort());

const isColoured = process.stdout.isTTY === true && process.env.NO_COLOR === undefined;
const print = createPrint((text) => process.stdout.write(text), isColoured);
try {
  process.exit(await runDemo(print, stop.signal));
} catch (error) {
  process.stderr.write(`kpng demo failed: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
