import type { ConnectRouter } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { MoreService } from "../stream/serve/routes.ts";
import type { WatchContext } from "../stream/session/open-watch.ts";
import { RecentChanges } from "./changes/recent-changes.ts";
import { explainMethod } from "./explain-method.ts";
import { inspectLists } from "./list-methods.ts";
import { inspectWatches } from "./watch-methods.ts";

/**
 * Begins to follow changes on their way to the nodes, and returns kpng.inspect.v1.InspectService, which tells of them and
 * of all else that a watcher holds. Make it before the source runs: what changed before is not remembered.
 */
export function inspection({ store, subscribers, proxyNames }: WatchContext): MoreService {
  const changes = new RecentChanges();
  store.observe((update) => changes.add(update));
  subscribers.observe(changes);
  const context = { store, subscribers, proxyNames, changes };
  const startedAtMs = wallClockMs();
  return {
    service: InspectService,
    addTo: (router: ConnectRouter) =>
      router.service(InspectService, {
        ...inspectLists(context, startedAtMs),
        ...inspectWatches(context),
        explain: (request) => explainMethod(context, request),
      }),
  };
}
