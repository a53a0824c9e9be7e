import { waitMs } from "@kpng/process/wait.ts";
import { Gauge, type Registry } from "prom-client";
import type { CurrencySink } from "./source.ts";

/**
 * Asks the server of a source again and again whether the state is current, and reports the source as stale or fresh. A
 * watch alone cannot tell a frozen server from a quiet one.
 *
 * Without an answer, the source is reported as stale at most 4/3 × `staleAfterMs` after the last one; with the answer
 * that the state is out of date, at once. Ends when `signal` aborts; never rejects.
 */
export async function probeServer(
  { ask, currency, staleAfterMs = standardStaleAfterMs, onSilent = () => undefined }: ProbeOptions,
  signal: AbortSignal,
): Promise<void> {
  const intervalMs = staleAfterMs / 3;
  let answeredAtMs = performance.now();
  while (!signal.aborted) {
    const askedAtMs = performance.now();
    const answer = await ask(staleAfterMs - intervalMs, signal);
    if (signal.aborted) return;
    if (answer.kind !== "silent") answeredAtMs = askedAtMs;
    if (answer.kind === "current") currency.fresh();
    else if (answer.kind === "behind") currency.stale(answer.reason);
    else if (performance.now() - answeredAtMs >= staleAfterMs) {
      currency.stale(answer.reason);
      onSilent();
    }
    await waitMs(intervalMs, signal);
  }
}

/** Default of `--stale-after`, in milliseconds. */
export const standardStaleAfterMs = 15_000;

/**
 * What the server of a source says about the state.
 *
 * - current: it is that of the server.
 * - behind: the server answered, and the state may be another one.
 * - silent: the server did not answer, or not in full.
 */
export type ProbeAnswer =
  | { readonly kind: "current" }
  | { readonly kind: "behind"; readonly reason: string }
  | { readonly kind: "silent"; readonly reason: string };

interface ProbeOptions {
  /** Asks the server, for at most `limitMs`. Never rejects. */
  readonly ask: (limitMs: number, signal: AbortSignal) => Promise<ProbeAnswer>;
  readonly currency: CurrencySink;
  /** Time without an answer after which the source is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
  /** Called when the source is stale because the server is silent. */
  readonly onSilent?: (() => void) | undefined;
}

/**
 * Gauge kpng_source_connected: 1 while a source is connected to its server. The label `kind` is the kind of object, or
 * "all" for the source `api`, whose one stream carries all kinds.
 */
export type ConnectedGauge = Gauge<"source" | "kind">;

/** Registers the gauge. */
export function makeConnectedGauge(registry: Registry): ConnectedGauge {
  return new Gauge({
    name: "kpng_source_connected",
    help: "1 while the source is connected to its server, 0 from a failure until it receives data again",
    labelNames: ["source", "kind"],
    registers: [registry],
  });
}
