import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { type EmptyOp, Feature, Sets, type WatchReq, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { Reconnect } from "@kpng/process/connection/reconnect.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";

/** What a simulated node does wrong, by name. */
export const nodeFaults = {
  cut: "breaks its connection at random, every 5 s on average",
  slow: "takes a second to apply a batch",
  freeze: "reads nothing more after its first batch, and keeps its connection open",
  duplicate: "has the name of the first node",
} as const;

/** Name of a fault. */
export type NodeFault = keyof typeof nodeFaults;

export interface SimulatedNodeOptions {
  readonly name: string;
  readonly transport: Transport;
  /** Requests our own fields and acknowledges, as the kit does. False makes the requests of the original KPNG. */
  readonly isExtended: boolean;
  readonly fault: NodeFault | undefined;
  /** Returns a number from 0 up to but not including 1. */
  readonly random: () => number;
}

/** Mean time between two cuts, in milliseconds. */
const meanCutMs = 5_000;

/** Time in which a slow node applies a batch, in milliseconds. */
const slowMs = 1_000;

/**
 * A node without rules: it reads its view and keeps nothing of it. It opens streams, requests batches, acknowledges and
 * reconnects as a backend does, and it costs far less.
 */
export class SimulatedNode {
  readonly #options: SimulatedNodeOptions;
  /** Number of batches received. */
  batchCount = 0;
  /** Number of streams that have ended. */
  lostCount = 0;
  /** Revision of its last batch; 0 before the first one, and always for a node that is not extended. */
  revision = 0;
  /** Reason of the last lost stream; undefined if the present one works. */
  failure: string | undefined;
  /** True while its stream has brought the whole view. */
  isSynced = false;

  constructor(options: SimulatedNodeOptions) {
    this.#options = options;
  }

  /** Runs until `signal` aborts, then resolves. `onBatch` is called after each batch. */
  async run(onBatch: () => void, signal: AbortSignal): Promise<void> {
    const reconnect = new Reconnect({ random: this.#options.random });
    while (!signal.aborted) {
      reconnect.opening();
      const cut = new AbortController();
      const progressed = (): void => {
        reconnect.progressed();
        onBatch();
      };
      try {
        await this.#follow(progressed, AbortSignal.any([signal, cut.signal]), cut);
      } catch (error) {
        if (signal.aborted) return;
        this.isSynced = false;
        this.lostCount += 1;
        this.failure = error instanceof Error ? error.message : String(error);
        const { delayMs } = reconnect.ended(cut.signal.aborted ? undefined : error);
        await waitMs(delayMs, signal);
      }
    }
  }

  async #follow(onBatch: () => void, signal: AbortSignal, cut: AbortController): Promise<void> {
    const { transport, fault, random } = this.#options;
    const requests = new RequestQueue();
    const ended = new AbortController();
    requests.push(this.#request());
    // Exponential, so that cuts come at random moments.
    const cutMs = -Math.log(1 - random()) * meanCutMs;
    const timer = fault === "cut" ? setTimeout(() => cut.abort(new Error("cut by the simulation")), cutMs) : undefined;
    try {
      for await (const { Op: op } of createClient(Sets, transport).watch(requests.read(ended.signal), { signal })) {
        if (op.case !== "Sync") continue;
        this.batchCount += 1;
        this.revision = Number(op.value.Revision);
        this.isSynced = true;
        this.failure = undefined;
        onBatch();
        if (fault === "freeze") await waitMs(2 ** 31 - 1, signal);
        if (fault === "slow") await waitMs(slowMs, signal);
        requests.push(...this.#afterBatch(op.value));
      }
      throw new Error("the watcher ended the stream");
    } finally {
      clearTimeout(timer);
      ended.abort();
    }
  }

  #request(): WatchReq {
    const { name, isExtended } = this.#options;
    const Features = [Feature.Extended, Feature.NodeItem, Feature.Batches];
    const Subscriber = { Name: "kpng-simulate" };
    return create(WatchReqSchema, { NodeName: name, ...(isExtended ? { Features, Subscriber } : {}) });
  }

  #afterBatch({ TakesAcks, Revision }: EmptyOp): readonly WatchReq[] {
    const ack: MessageInitShape<typeof WatchReqSchema> = { Ack: { Applied: Revision } };
    const isAcknowledged = this.#options.isExtended && TakesAcks;
    return [...(isAcknowledged ? [create(WatchReqSchema, ack)] : []), this.#request()];
  }
}

/** Requests of a stream, in order, until `signal` aborts. */
class RequestQueue {
  readonly #queue: WatchReq[] = [];
  readonly #pushed = new Wakeup();

  push(...requests: readonly WatchReq[]): void {
    this.#queue.push(...requests);
    this.#pushed.wake();
  }

  async *read(signal: AbortSignal): AsyncGenerator<WatchReq, void, void> {
    while (!signal.aborted) {
      yield* this.#queue.splice(0);
      if (this.#queue.length === 0) await this.#pushed.wait(signal);
    }
  }
}
