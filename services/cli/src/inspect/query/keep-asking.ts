import { Code, ConnectError } from "@connectrpc/connect";
import { Backoff } from "@kpng/process/backoff.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { terminalText } from "../print/terminal-text.ts";

/** Errors that another attempt does not change. */
const finalCodes: ReadonlySet<Code> = new Set([
  Code.InvalidArgument,
  Code.NotFound,
  Code.PermissionDenied,
  Code.Unauthenticated,
  Code.Unimplemented,
]);

/**
 * Repeats `work` when the watcher goes away, until `signal` aborts or `work` returns true. `work` calls `answered` for
 * each answer. It reports on standard error when the connection is lost, and when it is restored.
 *
 * `kpng get --watch` and `kpng top` call it, because a watcher restarts whenever it is upgraded. Separate from
 * `withRequestErrors`, under which all other queries fail at once.
 *
 * Errors: those of `work` before the first answer, and those that another attempt does not change.
 */
export async function keepAsking(signal: AbortSignal, work: (answered: () => void) => Promise<boolean>): Promise<void> {
  const backoff = new Backoff({ minMs: 500, maxMs: 5_000 });
  let state: "new" | "connected" | "lost" = "new";
  const answered = (): void => {
    if (state === "lost") process.stderr.write("connected again; what follows begins with the current state\n");
    state = "connected";
    backoff.reset();
  };
  while (!signal.aborted) {
    let reason = "the watcher ended the stream";
    try {
      if (await work(answered)) return;
    } catch (error) {
      const isFinal = !(error instanceof ConnectError) || finalCodes.has(error.code);
      if (signal.aborted || state === "new" || isFinal) throw error;
      reason = error.message;
    }
    if (signal.aborted) return;
    if (state !== "lost") process.stderr.write(`connection lost: ${terminalText(reason)}; trying again\n`);
    state = "lost";
    await waitMs(backoff.nextMs(), signal);
  }
}
