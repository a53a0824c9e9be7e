import type { NodeView } from "@kpng/model/node-view.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Registry } from "prom-client";
import { FlowWatch } from "./flow-watch.ts";
import { ServiceTrafficCounts } from "./service-counts.ts";
import { registerServiceTraffic } from "./traffic-metrics.ts";
import type { ReadServiceCounts } from "./traffic-reporter.ts";

/**
 * Counts the traffic of each Service on this node, for metrics and for the watcher (`--service-traffic`). `AfterCommit`
 * creates it; it works with every backend whose rules translate addresses in the kernel, because conntrack knows each
 * such flow. This class only connects three parts: events (`FlowWatch`), counters (`ServiceTrafficCounts`) and metrics.
 */
export class ServiceTraffic {
  readonly #counts = new ServiceTrafficCounts();
  readonly #watch: FlowWatch;
  #view: NodeView | undefined;

  constructor(log: Log, metrics: Registry) {
    const restarts = registerServiceTraffic(metrics, this.#counts);
    this.#watch = new FlowWatch({
      log,
      onEvent: (event) => {
        this.#useView();
        this.#counts.add(event);
      },
      onEnd: () => restarts.inc(),
    });
  }

  /** Counts the Services of this view from the next event on. */
  setView(view: NodeView): void {
    this.#view = view;
  }

  /** Returns the counters of each Service that has had a flow. */
  readonly read: ReadServiceCounts = () => this.#counts.all;

  /** Follows flows until `signal` aborts. */
  readonly run = (signal: AbortSignal): Promise<void> => this.#watch.run(signal);

  /** Once for all changes since the last event: a node may have thousands of frontends. */
  #useView(): void {
    if (this.#view === undefined) return;
    this.#counts.setView(this.#view);
    this.#view = undefined;
  }
}
