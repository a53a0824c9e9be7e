import { NotApplicable, Play, type ProtocolCase, type ProtocolSettings } from "./protocol-cases.ts";
import type { CaseResult } from "./results.ts";

/** Runs one case with a backend of its own. The case fails as soon as `interrupted` resolves. */
export async function runCase(
  one: ProtocolCase,
  settings: ProtocolSettings,
  interrupted: Promise<void>,
): Promise<CaseResult> {
  const startMs = performance.now();
  const end = (kind: CaseResult["kind"], reason = ""): CaseResult => {
    return { id: one.id, rule: one.rule, kind, reason, elapsedMs: performance.now() - startMs };
  };
  await using play = await Play.start(settings, one.isSlow);
  try {
    await Promise.race([one.run(play), interrupted.then(() => Promise.reject(new Error("interrupted")))]);
    return end("passed");
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (error instanceof NotApplicable) return end("not-applicable", text);
    const { ended, errors } = play.backend;
    const exit = ended === undefined || text.includes(ended) ? "" : ` (the backend has ended: ${ended})`;
    const said = errors.trimEnd().split("\n").slice(-5).join("\n");
    return end("failed", `${text}${exit}${said === "" ? "" : `\nThe backend said last:\n${said}`}`);
  }
}
