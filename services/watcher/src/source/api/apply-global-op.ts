import { assertNever } from "@kpng/model/assert-never.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import {
  decodeClusterInfo,
  decodeEndpointInfo,
  decodeNodeInfo,
  decodeServiceInfo,
} from "@kpng/model/wire/global-message.ts";
import { WireError } from "@kpng/model/wire/wire-error.ts";
import { estimateItemBytes } from "./batch-size.ts";
import type { GlobalItems } from "./global-items.ts";

/**
 * Applies one operation of a global stream to `items`. Returns true if it was the sync marker that ends a batch.
 *
 * Errors: WireError; `items` are then unchanged.
 *
 * The sources `api` and `replay`, and the command line for `kpng bug-report`, call it for each operation. Separate from
 * `GlobalItems`, which knows nothing about the wire.
 */
export function applyGlobalOp(items: GlobalItems, { Op: op }: OpItem): boolean {
  switch (op.case) {
    case "Reset":
      items.clear();
      return false;
    case "Keep":
      throw new WireError("the global stream began with Keep, which we did not request");
    case "Batch":
      throw new WireError("the global stream contains packed operations, which we did not request");
    case "Sync":
      return true;
    case "Set":
      at(op.value.Ref, (ref) => put(ref, op.value.Bytes, items));
      return false;
    case "Delete":
      at(op.value, (ref) => items.delete(ref.Set, ref.Path));
      return false;
    case undefined:
      return false;
    default:
      return assertNever(op);
  }
}

function put(ref: Ref, bytes: Uint8Array, items: GlobalItems): void {
  const memory = (portCount = 0): number => estimateItemBytes(ref.Path.length, bytes.length, portCount);
  switch (ref.Set) {
    case SetName.GlobalServiceInfos: {
      const service = decodeServiceInfo(bytes);
      items.putService(ref.Path, service, memory(service.ports.length));
      break;
    }
    case SetName.GlobalNodeInfos:
      items.putNode(ref.Path, decodeNodeInfo(bytes), memory());
      break;
    case SetName.GlobalEndpointInfos:
      // KPNG sends each endpoint twice. The path of the copy has no Service name.
      if (ref.Path.split("|")[1] !== "") {
        const item = decodeEndpointInfo(bytes);
        items.putEndpoint(ref.Path, { ...item, bytes: memory(item.endpoint.ports.length) });
      }
      break;
    case SetName.GlobalClusterInfos:
      items.setServiceCIDRs(decodeClusterInfo(bytes));
      break;
    default:
      // A Set that only newer watchers send.
      break;
  }
}

/** Calls `apply` and adds the path to its errors. */
function at(ref: Ref | undefined, apply: (ref: Ref) => void): void {
  if (ref === undefined) throw new WireError("operation without a path");
  try {
    apply(ref);
  } catch (cause) {
    throw new WireError(`invalid item at "${ref.Path}"`, { cause });
  }
}
