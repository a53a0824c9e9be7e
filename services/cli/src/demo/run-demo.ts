import { once } from "node:events";
import { meetRequirements } from "@kpng/laboratory/open-laboratory.ts";
import type { Print } from "./print.ts";
import { tell } from "./story.ts";
import { renderWithoutPackets } from "./without-packets.ts";

/**
 * Runs the demo and returns its exit code: 0 if packets were sent and all was as it should be; 1 if something was not,
 * or if this machine cannot send packets in namespaces: then the reason and the rules are printed.
 *
 * Aborting `signal` ends everything that runs, and the result is 130. Nothing is left behind in any case.
 */
export async function runDemo(print: Print, signal: AbortSignal): Promise<number> {
  const start = performance.now();
  print.line("kpng demo: a Service owns whole IP addresses, and a program of your own makes the rules for it");
  const requirements = await meetRequirements(print.line);
  if (requirements.kind === "missing") {
    print.line(`No packets can be sent here: ${requirements.reason}`);
    print.line("The rules that node n1 would get:\n");
    print.line(await renderWithoutPackets(signal));
    return 1;
  }
  const { laboratory } = requirements;
  try {
    const aborted = signal.aborted ? Promise.resolve() : once(signal, "abort");
    const told = tell(laboratory, print).then(() => "told" as const);
    const end = await Promise.race([told, aborted.then(() => "aborted" as const)]);
    // What was under way fails when the laboratory closes; it was told to end, so nobody needs to hear of that.
    if (end === "aborted") told.catch(() => undefined);
    else print.line(`\nDone in ${((performance.now() - start) / 1_000).toFixed(1)} s; everything is removed again.`);
    return end === "told" ? 0 : 130;
  } finally {
    await laboratory.close();
  }
}
