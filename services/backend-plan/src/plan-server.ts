import { subjectOf } from "@kpng/backend-kit/plan/plan-message.ts";
import { framed, type PlanBatch } from "@kpng/backend-kit/plan/plan-task.ts";
import { PlanService, type WatchResponse } from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import { serveOnSocket } from "@kpng/process/connection/serve-on-socket.ts";
import type { Task } from "@kpng/process/task.ts";
import { Wakeup } from "@kpng/process/wait.ts";

/** Serves `kpng.plan.v1.PlanService` on a unix socket; see {@link serveOnSocket}. */
export class PlanServer {
  /** Serves until it is aborted. Errors: LISTEN_FAILED. */
  readonly task: Task;
  readonly #watches = new Set<PlanWatch>();
  readonly #plans = new DeliveredPlans();

  constructor(path: string) {
    this.task = { name: "plan server", run: (signal) => this.#serve(path, signal) };
  }

  /** Takes over a change, and wakes the clients. */
  push(batch: PlanBatch): void {
    this.#plans.apply(batch);
    for (const watch of this.#watches) watch.push(batch);
  }

  async *#watch(signal: AbortSignal): AsyncGenerator<WatchResponse, void, void> {
    const watch = new PlanWatch(this.#plans);
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
 * The plans of the last batch. The plans that are being made are not read, because one family would be newer than the
 * other.
 *
 * *Bound:* one operation for each Service and family.
 */
export class DeliveredPlans {
  /** Undefined until the first batch. */
  revision: bigint | undefined;
  readonly #operations = new Map<string, WatchResponse>();

  apply({ revision, isWhole, operations }: PlanBatch): void {
    this.revision = revision;
    if (isWhole) this.#operations.clear();
    for (const each of operations) {
      if (each.operation.case === "delete") this.#operations.delete(subjectOf(each));
      else this.#operations.set(subjectOf(each), each);
    }
  }

  /** The whole state. Nodes precede Services, as in the first batch. */
  get operations(): readonly WatchResponse[] {
    return [...this.#operations.values()];
  }
}

/**
 * What one client has not received yet.
 *
 * *Bound:* one operation for each Service and family. Changes that arrive while the client is slow are merged.
 */
export class PlanWatch {
  readonly #plans: DeliveredPlans;
  readonly #changed = new Map<string, WatchResponse>();
  readonly #arrived = new Wakeup();
  /** True if the client must receive the whole state. */
  #isBehind = true;

  constructor(plans: DeliveredPlans) {
    this.#plans = plans;
  }

  /** To be called after the plans have taken over the batch. */
  push({ isWhole, operations }: PlanBatch): void {
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
    const { revision } = this.#plans;
    if (revision === undefined || (!this.#isBehind && this.#changed.size === 0)) return undefined;
    const isWhole = this.#isBehind;
    const operations = isWhole ? this.#plans.operations : [...this.#changed.values()];
    this.#isBehind = false;
    this.#changed.clear();
    return { revision, isWhole, operations };
  }
}
