import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Position } from "../forward/position.ts";
import type { Position as PositionMessage, PositionSchema } from "../gen/localv1/api_pb.ts";

/**
 * Encodes a position. The watcher calls it for sync markers and answers of its PositionService, backends and relays for
 * their questions to that service. Separate from the rules about positions (`forward/`), which know no messages.
 *
 * In a sync marker, whose instance is the argument `instance`, a source equal to it is left out.
 */
export function encodePosition(position: Position, instance = ""): MessageInitShape<typeof PositionSchema> {
  const { source, epoch, services, slices, nodes } = position;
  const isOwn = source === instance;
  return { Source: isOwn ? "" : source, Epoch: epoch, Services: services, Slices: slices, Nodes: nodes };
}

/**
 * Decodes a position; undefined if the message is absent or names no source. `instance` is the instance in the sync
 * marker that contains the position; "" for any other message.
 */
export function decodePosition(message: PositionMessage | undefined, instance = ""): Position | undefined {
  if (message === undefined) return undefined;
  const source = message.Source || instance;
  if (source === "") return undefined;
  return { source, epoch: message.Epoch, services: message.Services, slices: message.Slices, nodes: message.Nodes };
}
