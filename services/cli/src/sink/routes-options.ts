import type { Store } from "@kpng/watcher/store/store.ts";
import type { RoutesOptions } from "@kpng/watcher/stream/serve/routes.ts";
import { observeConvergence } from "@kpng/watcher/stream/session/convergence.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { TraceSends } from "@kpng/watcher/trace/traces.ts";
import type { CommandContext } from "../context/command-context.ts";

/**
 * Returns the options of a watcher's routes, with its subscribers, their metrics and their traces. Every sink with
 * subscribers calls it: `toApi`, `toLocal` and `toExternal`; so does `makeInspectSource` for queries. A file of its
 * own, because all four make a watcher and must agree.
 */
export function routesOptions(proxyNames: readonly string[], store: Store, context: CommandContext): RoutesOptions {
  const subscribers = new Subscribers(context.metrics);
  observeConvergence(store, subscribers, context.metrics);
  if (context.tracing !== undefined) subscribers.observe(new TraceSends(store, context.tracing));
  return {
    store,
    health: context.health,
    subscribers,
    proxyNames: proxyNamesOf(proxyNames),
  };
}
