import { createLog } from "@kpng/process/log.ts";
import { exportTraces } from "@kpng/process/trace/export-traces.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import { Registry } from "prom-client";
import type { InspectContext } from "../../services/watcher/src/inspect/inspect-context.ts";
import { inspection } from "../../services/watcher/src/inspect/inspection.ts";
import { Store } from "../../services/watcher/src/store/store.ts";
import { observeConvergence } from "../../services/watcher/src/stream/session/convergence.ts";
import { proxyNamesOf } from "../../services/watcher/src/stream/session/requests.ts";
import { Subscribers } from "../../services/watcher/src/stream/session/subscribers.ts";
import { traceRevisions } from "../../services/watcher/src/trace/trace-revisions.ts";
import { TraceSends } from "../../services/watcher/src/trace/trace-sends.ts";

/** Store with subscribers whose tracing can be switched while they serve, to compare both in one process. */
export class TracedStore {
  readonly store: Store;
  readonly subscribers: Subscribers;
  readonly inspectContext: InspectContext;
  readonly #tracings = new Map<number, Tracing>();
  #trace: ReturnType<typeof traceRevisions> | undefined;
  #sends: TraceSends | undefined;

  constructor() {
    this.store = new Store({ trace: (update) => this.#trace?.(update) });
    const registry = new Registry();
    this.subscribers = new Subscribers(registry);
    // `kpng to-api` does the same.
    observeConvergence(this.store, this.subscribers, registry);
    const api = inspection({ store: this.store, subscribers: this.subscribers, proxyNames: proxyNamesOf([]) });
    this.inspectContext = api.context;
    this.subscribers.observe({ sent: (...delivery) => this.#sends?.sent(...delivery) });
  }

  /** Traces this share of the following changes; undefined traces none, as without a collector. */
  traceAt(ratio: number | undefined): void {
    const tracing = ratio === undefined ? undefined : this.#tracingAt(ratio);
    this.#trace = tracing && traceRevisions(tracing);
    this.#sends = tracing && new TraceSends(this.store, tracing);
  }

  #tracingAt(ratio: number): Tracing {
    const held = this.#tracings.get(ratio);
    if (held !== undefined) return held;
    const settings = { ratio, isParentBased: true };
    const tracing = exportTraces({ name: "kpng-watcher", version: "0.0.0" }, settings, createLog("error"));
    this.#tracings.set(ratio, tracing);
    return tracing;
  }
}
