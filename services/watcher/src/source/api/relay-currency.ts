import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { type Admission, ForwardGate } from "@kpng/model/forward/forward-gate.ts";
import type { Position } from "@kpng/model/forward/position.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { pushbackOf } from "@kpng/process/connection/retry-pushback.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { type ProbeAnswer, probeServer } from "../probe-server.ts";
import type { CurrencySink } from "../source.ts";

/**
 * Keeps a relay from going back to an older state of its upstream watcher, and asks the upstream every few seconds
 * whether its state is current. A relay has the positions of its upstream, and holds nothing else: it sends what its
 * upstream would.
 */
export class RelayCurrency {
  readonly #gate: ForwardGate;
  readonly #options: RelayCurrencyOptions;
  /** Why there is no stream in sync; undefined while there is one. */
  #failure: string | undefined = "no stream from the upstream watcher";
  /** True after the first batch. Not derived from the gate: an original KPNG sends no positions. */
  #hasState = false;

  constructor(options: RelayCurrencyOptions) {
    this.#options = options;
    this.#gate = new ForwardGate({ acceptAfterMs: options.acceptOlderAfterMs });
  }

  /** Decides about a batch; see {@link ForwardGate}. */
  admit(position: Position | undefined): Admission {
    // Also from an upstream that is stale: the relay is then stale itself, and its nodes decide.
    const admission = this.#gate.admit({ position });
    if (admission.verdict === "accept") this.#options.onOlder();
    return admission;
  }

  /** Shortens the delay before the next stream while the upstream offers only older states. */
  retryDelayMs(delayMs: number): number {
    return this.#gate.retryDelayMs(delayMs);
  }

  /** The stream is in sync. */
  connected(): void {
    this.#failure = undefined;
    this.#hasState = true;
  }

  /** The stream has ended. */
  lost(reason: string): void {
    this.#failure = reason;
  }

  /** Probes the upstream until `signal` aborts. */
  async run(currency: CurrencySink, signal: AbortSignal): Promise<void> {
    const { transport, staleAfterMs, onFrozen } = this.#options;
    const ask = async (limitMs: number): Promise<ProbeAnswer> => {
      // The first batch is reported by the readiness of the process.
      if (!this.#hasState) return { kind: "current" };
      if (this.#failure !== undefined) return { kind: "silent", reason: this.#failure };
      try {
        const client = createClient(PositionService, transport());
        const { isStale } = await client.check({}, { signal, timeoutMs: limitMs });
        return isStale ? { kind: "behind", reason: "the upstream watcher is stale" } : { kind: "current" };
      } catch (error) {
        const reason = reasonOf(error);
        const { code } = ConnectError.from(error);
        const isFrozen = code === Code.DeadlineExceeded;
        // A proxy may send UNAVAILABLE for a frozen upstream; a busy watcher adds a delay to it.
        const isUnavailable = code === Code.Unavailable && pushbackOf(error) === undefined;
        // Any other error is an answer: for example, an original KPNG does not know the call.
        if (!isFrozen && !isUnavailable) return { kind: "current" };
        if (isFrozen) onFrozen(reason);
        return { kind: "silent", reason: `the upstream watcher does not answer: ${reason}` };
      }
    };
    await probeServer({ ask, currency, staleAfterMs }, signal);
  }
}

/** Options of {@link RelayCurrency}. */
export interface RelayCurrencyOptions {
  /** Returns the current connection to the upstream watcher. */
  readonly transport: () => Transport;
  readonly acceptOlderAfterMs?: number | undefined;
  readonly staleAfterMs?: number | undefined;
  /** An older state was accepted, because the upstream offered nothing newer for some time. */
  readonly onOlder: () => void;
  /** The upstream did not answer in time, for this reason. */
  readonly onFrozen: (reason: string) => void;
}
