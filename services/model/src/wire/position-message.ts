import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Position } from "../forward/position.ts";
import type { Position as PositionMessage, PositionSchema } from "../gen/localv1/api_pb.ts";

/** Encodes the position in a sync marker of `instance`. A source equal to the instance is left out. */
export function encodePosition(position: Position, instance: string): MessageInitShape<typeof PositionSchema> {
  const { source, services, slices, nodes, current } = position;
  return {
    Source: source === instance ? "" : source,
    Services: services,
    Slices: slices,
    Nodes: nodes,
    CurrentServices: current.services,
    CurrentSlices: current.slices,
    CurrentNodes: current.nodes,
  };
}

/** Decodes the position in a sync marker of `instance`; undefined if there is none, or it names no source. */
export function decodePosition(message: PositionMessage | undefined, instance: string): Position | undefined {
  if (message === undefined) return undefined;
  const source = message.Source || instance;
  if (source === "") return undefined;
  const { Services: services, Slices: slices, Nodes: nodes } = message;
  const atLeast = (version: bigint, current: bigint): bigint => (current > version ? current : version);
  return {
    source,
    services,
    slices,
    nodes,
    current: {
      services: atLeast(services, message.CurrentServices),
      slices: atLeast(slices, message.CurrentSlices),
      nodes: atLeast(nodes, message.CurrentNodes),
    },
  };
}
