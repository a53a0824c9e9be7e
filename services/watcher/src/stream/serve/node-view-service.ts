import { setImmediate } from "node:timers/promises";
import { create, fromBinary } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import type { ServiceImpl } from "@connectrpc/connect";
import type { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { GetNodeViewResponseSchema, WatchNodeViewResponseSchema } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { Feature, NodeSchema, type OpItem, type WatchReq, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { checkNodeRight } from "../../identity/rights.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import { openLocalWatch, type WatchContext } from "../session/open-watch.ts";
import { readLocalRequest, syncedSnapshot } from "../session/requests.ts";
import { scheduledItems } from "../session/scheduler.ts";
import { CollectedView } from "./collected-view.ts";
import { lateJsonKey } from "./late-json.ts";
import { leaveKey } from "./leave.ts";
import { clientOf, rightsKey } from "./peer.ts";
import { watchOps } from "./watch-ops.ts";

/**
 * Implements kpng.view.v1.NodeViewService: a node's view, for clients without bidirectional streams.
 *
 * `makeRoutes` registers it. Separate from `watchOps`, because its two methods ask for one node by name and answer with
 * its view; they read no stream of requests.
 */
export function nodeViewService(context: WatchContext): ServiceImpl<typeof NodeViewService> {
  const { store, proxyNames } = context;
  return {
    async getNodeView(request, { signal, values }) {
      values.get(leaveKey).throwIfAborted();
      checkNodeRight(values.get(rightsKey), request.nodeName);
      const local = readLocalRequest(toWatchReq(request), proxyNames);
      const snapshot = syncedSnapshot(store);
      const view = new CollectedView();
      const frames = nodeProjection(local).whole(snapshot).frames();
      await allOf(view.collect(frames), signal);
      const response = create(GetNodeViewResponseSchema, {
        revision: BigInt(snapshot.revision),
        ...(view.node !== undefined && { node: fromBinary(NodeSchema, view.node) }),
      });
      const json = values.get(lateJsonKey);
      if (json !== undefined) {
        json.set("items", await allOf(view.jsonItems(), signal));
        return response;
      }
      // Encoded in steps: as fields of the message, the library would encode all of them at once.
      const items = await allOf(view.binaryItems(), signal);
      response.$unknown = items.map((data) => ({
        no: GetNodeViewResponseSchema.field.items.number,
        wireType: WireType.LengthDelimited,
        data,
      }));
      return response;
    },
    async *watchNodeView(request, call) {
      const { signal, values } = call;
      const message = toWatchReq(request);
      // Yields the next request only after the client has read a batch: the stream would take any number of requests.
      const wasRead = new Wakeup();
      let isDue = true;
      const requests = (async function* requestsAsRead() {
        while (!signal.aborted) {
          if (!isDue) {
            await wasRead.wait(signal);
            continue;
          }
          isDue = false;
          yield message;
        }
      })();
      let ops: OpItem[] = [];
      const watch = { requests, client: clientOf(call), signal, leave: values.get(leaveKey) };
      for await (const op of watchOps(openLocalWatch, context, watch)) {
        ops.push(op);
        const isBatchEnd = op.Op.case === "Sync";
        if (!isBatchEnd && ops.length < maxOpsPerMessage) continue;
        yield create(WatchNodeViewResponseSchema, { ops });
        ops = [];
        if (!isBatchEnd) {
          await setImmediate();
          continue;
        }
        isDue = true;
        wasRead.wake();
      }
    },
  };
}

/** Returns the items, each computed as a scheduled piece of work. Throws the signal's reason if it aborts. */
async function allOf<T>(items: Iterable<T>, signal: AbortSignal): Promise<T[]> {
  const all = await Array.fromAsync(scheduledItems(items, signal));
  signal.throwIfAborted();
  return all;
}

/** Operations in one message of WatchNodeView: 2 to 5 ms to decode and encode. A larger batch is divided. */
const maxOpsPerMessage = 500;

function toWatchReq({ nodeName, serviceProxyName }: { nodeName: string; serviceProxyName: string }): WatchReq {
  return create(WatchReqSchema, {
    NodeName: nodeName,
    ServiceProxyName: serviceProxyName,
    Features: [Feature.Extended, Feature.NodeItem],
  });
}
