import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Position } from "../forward/position.ts";
import type { Position as PositionMessage, PositionSchema } from "../gen/localv1/api_pb.ts";

/** Encodes a position. In a sync marker, the instance of the marker is left out as source: `instance`. */
export function encodePosition(position: Position, instance = ""): MessageInitShape<typeof PositionSchema> {
  const { source, epoch, services, slices, nodes } = position;
  const isOwn = source === instance;
  return { Source: isOwn ? "" : source, Epoch: epoch, Services: services, Slices: slices, Nodes: nodes };
}

/** Decodes a position; undefined if the message is absent or names no source. `instance`: that of the sync marker. */
export function decodePosition(message: PositionMessage | undefined, instance = ""): Position | undefined {
  if (message === undefined) return undefined;
  const source = message.Source || instance;
  if (source === "") return undefined;
  return { source, epoch: message.Epoch, services: message.Services, slices: message.Slices, nodes: message.Nodes };
}
