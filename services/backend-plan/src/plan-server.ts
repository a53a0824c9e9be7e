import { createServer, type ServerHttp2Session } from "node:http2";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { framed, type PlanBatch, type PlanState } from "@kpng/backend-kit/plan/plan-task.ts";
import { PlanService, type WatchResponse } from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import { listenOnSocket } from "@kpng/process/connection/listen.ts";
import type { Task } from "@kpng/process/task.ts";
import { aborted, Wakeup } from "@kpng/process/wait.ts";

/**
 * Serves `kpng.plan.v1.PlanService` on a unix socket, with gRPC and Connect over HTTP/2, to the socket's owner and group.
 */
export class PlanServer {
  /** Serves until it is aborted. Errors: LISTEN_FAILED. */
  readonly task: Task;
  readonly #watches = new Set<PlanWatch>();
  #state: PlanState | undefined;

  constructor(path: string) {
    this.task = { name: "plan server", run: (signal) => this.#serve(path, signal) };
  }

  /** Takes over a change, and wakes the clients. */
  push(batch: PlanBatch, state: PlanState): void {
    this.#state = state;
    for (const watch of this.#watches) watch.push(batch);
  }

  async *#watch(signal: AbortSignal): AsyncGenerator<WatchResponse, void, void> {
    const watch = new PlanWatch(() => this.#state);
    this.#watches.add(watch);
    try {
      yield* watch.operations(signal);
    } finally {
      this.#watches.delete(watch);
    }
  }

  async #serve(path: string, signal: AbortSignal): Promise<void> {
    const sessions = new Set<ServerHttp2Session>();
    const watch = (_request: unknown, context: { readonly signal: AbortSignal }) =>
      this.#watch(AbortSignal.any([signal, context.signal]));
    const server = createServer(
      connectNodeAdapter({ routes: (router) => router.service(PlanService, { watch }), readMaxBytes: maxRequestBytes }),
    );
    server.on("session", (session) => {
      sessions.add(session);
      // A broken connection concerns only its client.
      session.on("error", () => undefined).once("close", () => sessions.delete(session));
    });
    await listenOnSocket(server, path);
    // From now on, an error means that one connection could not be accepted; unhandled, it would end the process.
    server.on("error", () => undefined);
    await aborted(signal);
    for (const session of sessions) session.destroy();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** Maximum size of a request, which has no fields. */
const maxRequestBytes = 64 * 1024;

/**
 * What one client has not received yet.
 *
 * *Bound:* one operation for each Service and family. Changes that arrive while the client is slow are merged.
 */
export class PlanWatch {
  readonly #state: () => PlanState | undefined;
  readonly #changed = new Map<string, WatchResponse>();
  readonly #arrived = new Wakeup();
  #revision = 0n;
  /** True if the client must receive the whole state. */
  #isBehind = true;

  /** `state` returns undefined until the first plan. */
  constructor(state: () => PlanState | undefined) {
    this.#state = state;
  }

  push({ revision, isWhole, operations }: PlanBatch): void {
    this.#revision = revision;
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
    const state = this.#state();
    if (state === undefined || (!this.#isBehind && this.#changed.size === 0)) return undefined;
    const isWhole = this.#isBehind;
    // Copied, because the state goes on changing while the client reads.
    const operations = isWhole ? [...state.operations()] : [...this.#changed.values()];
    this.#isBehind = false;
    this.#changed.clear();
    return { revision: isWhole ? state.revision : this.#revision, isWhole, operations };
  }
}

/** Identifies what an operation replaces. */
function subjectOf({ operation }: WatchResponse): string {
  switch (operation.case) {
    case "service":
    case "delete":
      return `${operation.value.family} ${operation.value.namespace}/${operation.value.name}`;
    case "node":
      return `${operation.value.family}`;
    default:
      return "";
  }
}
