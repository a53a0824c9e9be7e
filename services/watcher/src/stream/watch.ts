import { Code, ConnectError, type HandlerContext } from "@connectrpc/connect";
import type { GlobalWatchReq } from "@kpng/model/gen/globalv1/api_pb.ts";
import type { OpItem, WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Store } from "../store/store.ts";
import { globalProjection } from "./global-projection.ts";
import { type LocalRequest, localProjection } from "./local-projection.ts";
import { changeOp, resetOp, syncOp } from "./ops.ts";
import type { Projection } from "./projection.ts";
import { isExtended, isSameRequest, type ProxyNames, readLocalRequest } from "./requests.ts";
import type { StreamMetrics } from "./stream-metrics.ts";
import { Subscription } from "./subscription.ts";

export interface WatchContext {
  readonly store: Store;
  readonly proxyNames: ProxyNames;
  readonly metrics: StreamMetrics;
}

/** What one request asks for. */
interface Wanted {
  readonly projection: Projection;
  readonly isExtended: boolean;
}

/** localv1.Sets.Watch: the order of messages is in the proto file. */
export function watchLocal(context: WatchContext) {
  return (requests: AsyncIterable<WatchReq>, { signal }: Pick<HandlerContext, "signal">): AsyncIterable<OpItem> => {
    let last: LocalRequest | undefined;
    let projection: Projection | undefined;
    return watch("local", context, requests, signal, (message) => {
      const request = readLocalRequest(message, context.proxyNames);
      if (projection === undefined || last === undefined || !isSameRequest(request, last)) {
        projection = localProjection(request);
        last = request;
      }
      return { projection, isExtended: request.isExtended };
    });
  };
}

/** globalv1.Sets.Watch: the order of messages is in the proto file. */
export function watchGlobal(context: WatchContext) {
  return (
    requests: AsyncIterable<GlobalWatchReq>,
    { signal }: Pick<HandlerContext, "signal">,
  ): AsyncIterable<OpItem> => {
    const make = (extended: boolean): Wanted => ({
      projection: globalProjection({ isExtended: extended, proxyName: context.proxyNames.standard }),
      isExtended: extended,
    });
    const [plain, extended] = [make(false), make(true)];
    return watch("global", context, requests, signal, (message) => (isExtended(message) ? extended : plain));
  };
}

async function* watch<Request>(
  kind: "local" | "global",
  { store, metrics }: WatchContext,
  requests: AsyncIterable<Request>,
  signal: AbortSignal,
  read: (request: Request) => Wanted,
): AsyncIterable<OpItem> {
  const subscription = new Subscription(store);
  let isFirst = true;
  metrics.subscribers.inc({ kind });
  try {
    for await (const request of requests) {
      const wanted = read(request);
      if (isFirst) yield resetOp;
      isFirst = false;
      const batch = await subscription.next(wanted.projection, signal);
      if (batch === undefined) break;
      for (const change of batch.changes) yield changeOp(change, wanted.projection);
      yield syncOp(batch, store.instance, wanted.isExtended);
      metrics.batches.inc({ kind });
      metrics.operations.inc({ kind }, batch.changes.length);
    }
    if (signal.aborted) throw new ConnectError("the watcher stops, or the client is gone", Code.Unavailable);
  } finally {
    metrics.subscribers.dec({ kind });
  }
}
