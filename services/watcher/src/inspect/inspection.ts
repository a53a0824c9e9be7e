import type { ConnectRouter } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { MoreService } from "../stream/serve/routes.ts";
import type { WatchContext } from "../stream/session/open-watch.ts";
import { scheduler } from "../stream/session/scheduler.ts";
import { RecentChanges } from "./changes/recent-changes.ts";
import { explainMethod } from "./explain-method.ts";
import type { InspectContext } from "./inspect-context.ts";
import { inspectionRights } from "./inspection-rights.ts";
import { listMethods } from "./list-methods.ts";
import { watchMethods } from "./watch-methods.ts";

/** State from which {@link inspection} answers. */
export interface InspectionOptions extends WatchContext {
  /** Version of the program, for `kpng version`. Default: unknown. */
  readonly version?: string | undefined;
}

/**
 * Returns the service kpng.inspect.v1.InspectService, which answers queries about the state of a watcher, and starts to
 * record changes for it. Call it before the source runs, because earlier changes are not recorded.
 *
 * The sink `to-api` adds it to the services of a watcher, and `makeInspectSource` to those of a `kpng SOURCE get`
 * without a watcher. The methods are in `list-methods.ts`, `watch-methods.ts` and `explain-method.ts`.
 */
export function inspection({ store, subscribers, proxyNames, version = "" }: InspectionOptions): Inspection {
  const changes = new RecentChanges();
  store.observe((update) => changes.add(update));
  subscribers.observe(changes);
  const context = { store, subscribers, proxyNames, changes, version, startedAtMs: wallClockMs() };
  return {
    context,
    service: InspectService,
    addTo: (router: ConnectRouter) =>
      router.service(
        InspectService,
        {
          ...listMethods(context),
          ...watchMethods(context),
          explain: (request) => scheduler.run("query", () => explainMethod(context, request)),
        },
        { interceptors: [inspectionRights] },
      ),
  };
}

/** The inspect API of a watcher, and the state that it reads. */
export interface Inspection extends MoreService {
  readonly context: InspectContext;
}
