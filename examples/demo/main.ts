import { once } from "node:events";
import { openLaboratory } from "@kpng/laboratory/laboratory.ts";
import { renderRules } from "./dry-run.ts";
import { type Print, printToStdout } from "./print.ts";
import { runWalkthrough } from "./walkthrough.ts";

/**
 * Runs the demo and returns its exit code: 0 if every packet went as expected; 1 if this machine cannot send packets in
 * namespaces, after printing the reason and the rules; 130 if `signal` aborted. Nothing is left behind in any case.
 *
 * Errors: a step that did not go as expected.
 */
export async function runDemo(print: Print, signal: AbortSignal): Promise<number> {
  const start = performance.now();
  print.line("demo: a Service owns whole IP addresses, and your own program makes the rules for it");
  const opened = await openLaboratory();
  if (opened.kind === "unavailable") {
    print.line(`Cannot send packets here: ${opened.reason}`);
    print.line("The rules that node n1 would get:\n");
    print.line(await renderRules(signal));
    return 1;
  }
  const { laboratory } = opened;
  try {
    const aborted = signal.aborted ? Promise.resolve() : once(signal, "abort");
    const walkthrough = runWalkthrough(laboratory, print).then(() => "complete" as const);
    const end = await Promise.race([walkthrough, aborted.then(() => "aborted" as const)]);
    if (end === "complete") {
      print.line(`\nDone in ${((performance.now() - start) / 1_000).toFixed(1)} s; everything is removed again.`);
      return 0;
    }
    // The current step fails when the laboratory closes, as intended.
    walkthrough.catch(() => undefined);
    return 130;
  } finally {
    await laboratory.close();
  }
}

// Cleans up after a second signal too: npm repeats the Ctrl-C of a terminal.

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => stop.abort());

try {
  process.exit(await runDemo(printToStdout(), stop.signal));
} catch (error) {
  process.stderr.write(`the demo failed: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
