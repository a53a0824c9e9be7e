import type { ServiceImpl } from "@connectrpc/connect";
import type { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { checkAnyRight } from "../../identity/rights.ts";
import type { Store } from "../../store/store.ts";
import { rightsKey } from "./peer.ts";

/**
 * Implements kpng.position.v1.PositionService: tells nodes and relays whether the state of this watcher is known to be
 * current. It answers from memory, so that no client causes requests to the API server.
 */
export function positionService({ currency }: Store): ServiceImpl<typeof PositionService> {
  return {
    check(_request, { values }) {
      checkAnyRight(values.get(rightsKey));
      return { isStale: currency.staleReason !== undefined };
    },
  };
}
