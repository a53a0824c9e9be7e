import { type Clock, realClock } from "@kpng/process/clock.ts";
import type { CurrencySink } from "./source.ts";

/**
 * Asks a server every `staleAfterMs` / 3 whether the state of the source is current, because a watch on a frozen server
 * looks like a quiet watch. The source becomes stale within 4/3 × `staleAfterMs` after the last answer, and immediately
 * if the answer is that the state is out of date. Ends when `signal` aborts; never rejects.
 */
export async function probeServer(
  { ask, currency, staleAfterMs = standardStaleAfterMs, onSilent, clock = realClock }: ProbeOptions,
  signal: AbortSignal,
): Promise<void> {
  const intervalMs = staleAfterMs / 3;
  let answeredAtMs = clock.nowMs();
  while (!signal.aborted) {
    const askedAtMs = clock.nowMs();
    const answer = await ask(staleAfterMs - intervalMs, signal);
    if (signal.aborted) return;
    if (answer.kind === "current" || answer.kind === "behind") answeredAtMs = askedAtMs;
    if (answer.kind === "current") currency.markFresh();
    else if (answer.kind === "behind") currency.markStale(answer.reason);
    else if (clock.nowMs() - answeredAtMs >= staleAfterMs) {
      currency.markStale(answer.reason);
      if (answer.kind === "silent") onSilent?.();
    }
    await clock.wait(intervalMs, signal);
  }
}

export const standardStaleAfterMs = 15_000;

/**
 * A server's answer about the state of the source.
 *
 * - current: the state equals the server's.
 * - behind: the state may be older than the server's, or belongs to another cluster.
 * - failing: the server answered, but requests that keep the state current fail, e.g. for want of a right.
 * - silent: the server did not answer.
 */
export type ProbeAnswer =
  | { readonly kind: "current" }
  | { readonly kind: "behind"; readonly reason: string }
  | { readonly kind: "failing"; readonly reason: string }
  | { readonly kind: "silent"; readonly reason: string };

interface ProbeOptions {
  /** Asks the server, for at most `limitMs`. Never rejects. */
  readonly ask: (limitMs: number, signal: AbortSignal) => Promise<ProbeAnswer>;
  readonly currency: CurrencySink;
  /** Time without an answer after which the source is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
  /** Called after each probe that finds the source stale because the server is silent. */
  readonly onSilent?: (() => void) | undefined;
  readonly clock?: Clock | undefined;
}
