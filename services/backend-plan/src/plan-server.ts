import { subjectOf } from "@kpng/backend-kit/plan/plan-message.ts";
import { framed, type PlanBatch, type PlanState } from "@kpng/backend-kit/plan/plan-task.ts";
import { PlanService, type WatchResponse } from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import { serveOnSocket } from "@kpng/process/connection/serve-on-socket.ts";
import type { Task } from "@kpng/process/task.ts";
import { Wakeup } from "@kpng/process/wait.ts";

/** Serves `kpng.plan.v1.PlanService` on a unix socket; see {@link serveOnSocket}. */
export class PlanServer {
  /** Serves until it is aborted. Errors: LISTEN_FAILED. */
  readonly task: Task;
  readonly #watches = new Set<PlanWatch>();
  /** Undefined until the first batch. */
  #state: PlanState | undefined;

  constructor(path: string) {
    this.task = { name: "plan server", run: (signal) => this.#serve(path, signal) };
  }

  /** Sends a batch of `state` to the clients. */
  push(batch: PlanBatch, state: PlanState): void {
    this.#state = state;
    for (const watch of this.#watches) watch.push(batch, state);
  }

  async *#watch(signal: AbortSignal): AsyncGenerator<WatchResponse, void, void> {
    const watch = new PlanWatch(this.#state);
    this.#watches.add(watch);
    try {
      yield* watch.operations(signal);
    } finally {
      this.#watches.delete(watch);
    }
  }

  #serve(path: string, signal: AbortSignal): Promise<void> {
    // When the server ends, it closes the connections, and so aborts their signals.
    const watch = (_request: unknown, context: { readonly signal: AbortSignal }) => this.#watch(context.signal);
    return serveOnSocket(path, (router) => router.service(PlanService, { watch }), signal);
  }
}

/**
 * What one client has not received yet.
 *
 * *Bound:* one operation for each Service and family. Changes that arrive while the client is slow are merged.
 */
export class PlanWatch {
  #state: PlanState | undefined;
  readonly #changed = new Map<string, WatchResponse>();
  readonly #arrived = new Wakeup();
  /** True if the client must receive the whole state. */
  #isBehind = true;

  /** `state` is undefined if there is none yet. */
  constructor(state: PlanState | undefined) {
    this.#state = state;
  }

  push({ isWhole, operations }: PlanBatch, state: PlanState): void {
    this.#state = state;
    if (isWhole) this.#isBehind = true;
    if (!this.#isBehind) for (const each of operations) this.#changed.set(subjectOf(each), each);
    this.#arrived.wake();
  }

  /** Yields the whole state and then the changes, until `signal` aborts. */
  async *operations(signal: AbortSignal): AsyncGenerator<WatchResponse, void, void> {
    while (!signal.aborted) {
      const batch = this.#take();
      if (batch === undefined) await this.#arrived.wait(signal);
      else yield* framed(batch);
    }
  }

  #take(): PlanBatch | undefined {
    const state = this.#state;
    if (state === undefined || (!this.#isBehind && this.#changed.size === 0)) return undefined;
    const changes = { revision: state.revision, isWhole: false, operations: [...this.#changed.values()] };
    const batch = this.#isBehind ? state.whole : changes;
    this.#isBehind = false;
    this.#changed.clear();
    return batch;
  }
}
