import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { CheckResponseSchema, type PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { decodePosition, encodePosition } from "@kpng/model/wire/position-message.ts";
import { checkAnyRight } from "../../identity/rights.ts";
import type { Store } from "../../store/store.ts";
import { syncedSnapshot } from "../session/requests.ts";
import { rightsKey } from "./peer.ts";

/**
 * Implements kpng.position.v1.PositionService: tells nodes and relays whether the state of this watcher is older than
 * theirs. A node calls it if a batch has a lower position than its view, which means an older state.
 *
 * `makeRoutes` registers it. Separate from the Watch of nodes, because it is one question with one answer.
 */
export function positionService(store: Store): ServiceImpl<typeof PositionService> {
  return {
    async check({ needed: message }, { values }) {
      checkAnyRight(values.get(rightsKey));
      const needed = decodePosition(message);
      syncedSnapshot(store);
      const covers = needed !== undefined && (await store.currency.covers(needed));
      const { instance, position, currency } = store;
      const isStale = currency.staleReason !== undefined;
      return create(CheckResponseSchema, { instance, state: encodePosition(position), covers, isStale });
    },
  };
}
