import { fromBinary, toJsonString } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { EndpointSchema, ServiceSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { Frame } from "../../items/frames.ts";
import { opsIn } from "./watch-ops.ts";

/** Operations or endpoints in one step: 3 to 10 ms as JSON. */
const itemsPerStep = 256;

/**
 * A node's view as encoded messages, collected from the frames of a first batch, and then encoded Service by Service
 * for `GetNodeViewResponse.items`. Each method yields between short steps: in one piece, 100 000 endpoints would keep
 * the event loop for a second.
 *
 * `nodeViewService` makes one for each GetNodeView. *Bound:* the bytes of one view. Separate from the service, because
 * it knows no calls.
 */
export class CollectedView {
  /** Encoded `localv1.Node`; undefined if the cluster does not know the node. */
  node: Uint8Array | undefined;
  readonly #services = new Map<string, CollectedService>();

  *collect(batch: Iterable<Frame>): Iterable<undefined> {
    let count = 0;
    for (const frames of batch) {
      for (const { Op: op } of opsIn(frames)) {
        if (op.case !== "Set") continue;
        this.#put(op.value.Ref?.Set, op.value.Ref?.Path ?? "", op.value.Bytes);
        count += 1;
        if (count % itemsPerStep === 0) yield undefined;
      }
      yield undefined;
    }
  }

  /** Yields each `ServiceEndpoints` in protobuf, preceded by its length. Ascending by namespace and name. */
  *binaryItems(): Iterable<Uint8Array> {
    for (const { bytes, endpoints } of ascending(this.#services)) {
      const item = new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(bytes);
      for (const endpoint of ascending(endpoints)) item.tag(2, WireType.LengthDelimited).bytes(endpoint);
      yield new BinaryWriter().bytes(item.finish()).finish();
    }
  }

  /** Yields pieces of a JSON array of `ServiceEndpoints`, in the same order. */
  *jsonItems(): Iterable<string> {
    let piece = "[";
    let count = 0;
    let isFirst = true;
    for (const { bytes, endpoints } of ascending(this.#services)) {
      piece += `${isFirst ? "" : ","}{"service":${toJsonString(ServiceSchema, fromBinary(ServiceSchema, bytes))}`;
      isFirst = false;
      for (const [index, endpoint] of ascending(endpoints).entries()) {
        const json = toJsonString(EndpointSchema, fromBinary(EndpointSchema, endpoint));
        piece += `${index === 0 ? ',"endpoints":[' : ","}${json}`;
        count += 1;
        if (count % itemsPerStep !== 0) continue;
        yield piece;
        piece = "";
      }
      piece += endpoints.size === 0 ? "}" : "]}";
      count += 1;
      if (count % itemsPerStep !== 0) continue;
      yield piece;
      piece = "";
    }
    yield `${piece}]`;
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
