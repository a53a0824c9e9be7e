import { setImmediate } from "node:timers/promises";
import { create, fromBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { compareText } from "@kpng/model/collections.ts";
import {
  GetNodeViewResponseSchema,
  type NodeViewService,
  ServiceEndpointsSchema,
  WatchNodeViewResponseSchema,
} from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import {
  Feature,
  NodeSchema,
  type OpItem,
  Set as SetName,
  type WatchReq,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { checkNodeRight } from "../../identity/rights.ts";
import type { Frame } from "../../items/frames.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import { openLocalWatch, type WatchContext } from "../session/open-watch.ts";
import { readLocalRequest, syncedSnapshot } from "../session/requests.ts";
import { scheduledItems } from "../session/scheduler.ts";
import { clientOf, leaveKey, rightsKey } from "./call.ts";
import { opsIn, watchOps } from "./watch-ops.ts";

/**
 * Implements kpng.view.v1.NodeViewService: a node's view, for clients without bidirectional streams.
 */
export function nodeViewService(context: WatchContext): ServiceImpl<typeof NodeViewService> {
  const { store, proxyNames } = context;
  return {
    async getNodeView(request, { signal, values, requestHeader, url }) {
      values.get(leaveKey).throwIfAborted();
      checkNodeRight(values.get(rightsKey), request.nodeName);
      const local = readLocalRequest(toWatchReq(request), proxyNames);
      const snapshot = syncedSnapshot(store);
      const frames = nodeProjection(local).whole(snapshot).frames();
      const view = new CollectedView();
      await allOf(view.collect(frames), signal);
      const response = create(GetNodeViewResponseSchema, {
        revision: BigInt(snapshot.revision),
        ...(view.node !== undefined && { node: fromBinary(NodeSchema, view.node) }),
      });
      const items = await allOf(view.items(), signal);
      if (isJson(requestHeader, url)) {
        if (view.count > maxJsonItems) throw new ConnectError(tooLargeForJson, Code.ResourceExhausted);
        response.items = items.map((item) => fromBinary(ServiceEndpointsSchema, item));
        return response;
      }
      // As fields of the message, the library would encode all of them at once, and keep the event loop meanwhile.
      response.$unknown = items.map((item) => ({
        no: GetNodeViewResponseSchema.field.items.number,
        wireType: WireType.LengthDelimited,
        data: new BinaryWriter().bytes(item).finish(),
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

/** Operations in one step: 3 to 10 ms. */
const itemsPerStep = 256;

/** Maximum number of objects in a view that is sent as JSON, which the library encodes in one piece: 50 ms. */
const maxJsonItems = 5_000;

const tooLargeForJson = `the view has more than ${maxJsonItems} objects, too many for JSON: ask for protobuf, or call WatchNodeView`;

function isJson(header: Headers, url: string): boolean {
  return header.get("content-type")?.includes("json") === true || /[?&]encoding=json\b/.test(url);
}

/**
 * A node's view as encoded messages, collected from the frames of a first batch, and then encoded Service by Service.
 * Each method yields between short steps: in one piece, 100 000 endpoints would keep the event loop for a second.
 *
 * *Bound:* the bytes of one view.
 */
class CollectedView {
  /** Encoded `localv1.Node`; undefined if the cluster does not know the node. */
  node: Uint8Array | undefined;
  /** Number of objects. */
  count = 0;
  readonly #services = new Map<string, CollectedService>();

  *collect(batch: Iterable<Frame>): Iterable<undefined> {
    for (const frames of batch) {
      for (const { Op: op } of opsIn(frames)) {
        if (op.case !== "Set") continue;
        this.#put(op.value.Ref?.Set, op.value.Ref?.Path ?? "", op.value.Bytes);
        this.count += 1;
        if (this.count % itemsPerStep === 0) yield undefined;
      }
      yield undefined;
    }
  }

  /** Yields each encoded `ServiceEndpoints`, ascending by namespace and name. */
  *items(): Iterable<Uint8Array> {
    for (const { bytes, endpoints } of ascending(this.#services)) {
      const item = new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(bytes);
      for (const endpoint of ascending(endpoints)) item.tag(2, WireType.LengthDelimited).bytes(endpoint);
      yield item.finish();
    }
  }

  #put(set: SetName | undefined, path: string, bytes: Uint8Array): void {
    switch (set) {
      case SetName.NodesSet:
        this.node = bytes;
        break;
      case SetName.ServicesSet:
        this.#services.set(path, { bytes, endpoints: new Map() });
        break;
      default:
        this.#services.get(path.slice(0, path.lastIndexOf("/")))?.endpoints.set(path, bytes);
    }
  }
}

interface CollectedService {
  readonly bytes: Uint8Array;
  readonly endpoints: Map<string, Uint8Array>;
}

function ascending<V>(map: ReadonlyMap<string, V>): V[] {
  return [...map].sort(([a], [b]) => compareText(a, b)).map(([, value]) => value);
}
