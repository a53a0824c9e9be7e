import { assertNever } from "@kpng/model/assert-never.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeEndpointInfo, decodeNodeInfo, decodeServiceInfo } from "@kpng/model/wire/global-message.ts";
import { WireError } from "@kpng/model/wire/wire-error.ts";
import type { GlobalItems } from "./global-items.ts";

/**
 * Applies one operation of a global stream to the items received so far; true if it was the marker that closes a batch.
 *
 * Errors: WireError; the items are then as before.
 */
export function receiveOp({ Op: op }: OpItem, items: GlobalItems): boolean {
  switch (op.case) {
    case "Reset":
      items.clear();
      return false;
    case "Keep":
      throw new WireError("a global stream began with Keep, which was not asked for");
    case "Batch":
      throw new WireError("a global stream has packed operations, which were not asked for");
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
  switch (ref.Set) {
    case SetName.GlobalServiceInfos:
      items.putService(ref.Path, decodeServiceInfo(bytes));
      break;
    case SetName.GlobalNodeInfos:
      items.putNode(ref.Path, decodeNodeInfo(bytes));
      break;
    case SetName.GlobalEndpointInfos: {
      // KPNG sends each endpoint twice; the copy's path names no Service.
      if (ref.Path.split("|")[1] !== "") items.putEndpoint(ref.Path, decodeEndpointInfo(bytes));
      break;
    }
    default:
      // A Set of a newer watcher.
      break;
  }
}

function at(ref: Ref | undefined, act: (ref: Ref) => void): void {
  if (ref === undefined) throw new WireError("an operation has no path");
  try {
    act(ref);
  } catch (cause) {
    throw new WireError(`the item at "${ref.Path}" cannot be understood`, { cause });
  }
}
