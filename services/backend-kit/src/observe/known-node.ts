import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { Gauge, type Registry } from "prom-client";
import type { ViewUpdate } from "../types/view-update.ts";

/** Options of {@link KnownNode}. */
export interface KnownNodeOptions {
  readonly nodeName: string;
  readonly health: Health;
  readonly log: Log;
  readonly metrics: Registry;
}

const healthPart = "node";

const unknown = "the cluster has no Node of this name: check --node-name";

/**
 * Reports whether the cluster has a Node of the name that a backend follows: a wrong `--node-name` gives a valid view
 * without endpoints on the node. `backendTask` passes it each view of a watcher. Separate from `ConnectionObserver`,
 * which reports the connection and sees no views.
 *
 * An unknown Node is logged, counted (`kpng_backend_node_known`) and the reason of the health part "node", which stays
 * ready: the Node of a machine that joins the cluster is created later. Go watchers send no Nodes, so nothing is
 * reported.
 */
export class KnownNode {
  readonly #options: KnownNodeOptions;
  readonly #gauge: Gauge;
  #isKnown: boolean | undefined;

  constructor(options: KnownNodeOptions) {
    this.#options = options;
    this.#gauge = new Gauge({
      name: "kpng_backend_node_known",
      help: "1 unless the watcher's cluster has no Node of the name that the backend follows",
      registers: [options.metrics],
    });
    this.#gauge.set(1);
  }

  /** Reports whether the view has a Node. */
  report({ view, instance }: Pick<ViewUpdate, "view" | "instance">): void {
    if (instance === "") return;
    const isKnown = view.node !== undefined;
    if (isKnown === this.#isKnown) return;
    const { nodeName, health, log } = this.#options;
    if (!isKnown) log.error("the cluster has no Node of this name", { nodeName });
    else if (this.#isKnown === false) log.info("the cluster has a Node of this name now", { nodeName });
    this.#isKnown = isKnown;
    this.#gauge.set(isKnown ? 1 : 0);
    health.set(healthPart, { isHealthy: true, isReady: true, reason: isKnown ? "" : unknown });
  }
}
