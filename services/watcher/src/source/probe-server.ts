import { waitMs } from "@kpng/process/wait.ts";
import type { CurrencySink } from "./source.ts";

/**
 * Asks the server of a source again and again whether it answers, and reports the source as stale if it does not. A
 * watch alone cannot tell a frozen server from a quiet one.
 *
 * The source is reported as stale at most 4/3 × `staleAfterMs` after the last answer of the server. Ends when `signal`
 * aborts; never rejects.
 *
 * `followCurrency` (source `kube`) and `RelayCurrency` (source `api`) call it. Separate from both, because only the
 * question to the server differs.
 */
export async function probeServer(
  { ask, currency, staleAfterMs = standardStaleAfterMs, onFresh = () => undefined }: ProbeOptions,
  signal: AbortSignal,
): Promise<void> {
  const intervalMs = staleAfterMs / 3;
  let answeredAtMs = performance.now();
  let isStale = false;
  while (!signal.aborted) {
    const askedAtMs = performance.now();
    const failure = await ask(staleAfterMs - intervalMs, signal);
    if (signal.aborted) return;
    if (failure === undefined) {
      answeredAtMs = askedAtMs;
      currency.fresh();
      if (isStale) onFresh();
      isStale = false;
    } else if (performance.now() - answeredAtMs >= staleAfterMs) {
      currency.stale(failure);
      isStale = true;
    }
    await waitMs(intervalMs, signal);
  }
}

/** Default of `--stale-after`, in milliseconds. */
export const standardStaleAfterMs = 15_000;

interface ProbeOptions {
  /**
   * Asks the server, for at most `limitMs`. Resolves with undefined if it answered and is current, else with the reason
   * why that is unknown. Never rejects.
   */
  readonly ask: (limitMs: number, signal: AbortSignal) => Promise<string | undefined>;
  readonly currency: CurrencySink;
  /** Time without an answer after which the source is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
  /** Called when the server answers again. */
  readonly onFresh?: (() => void) | undefined;
}
