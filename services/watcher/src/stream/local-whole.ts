import { compareText } from "@kpng/model/text-order.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { choosingNode } from "../view/node.ts";
import type { Frame } from "./frames.ts";
import { getOrMake } from "./get-or-make.ts";
import {
  anonymousSection,
  concernedNodes,
  type LocalRequest,
  nodeItems,
  noSlices,
  podSection,
  serviceItems,
  serviceSection,
} from "./local-units.ts";
import type { Changes } from "./projection.ts";

/** Services whose frames make one piece. Smaller pieces are shared more often, larger ones cost fewer writes. */
const servicesPerPiece = 16;

/**
 * A whole view as puts.
 *
 * It is written in pieces. A piece without a Service that concerns the node itself is the same bytes for every node of
 * the zone, made once for a snapshot: a thousand nodes that come at once share all but a few pieces.
 */
export function wholeView(snapshot: Snapshot, request: LocalRequest): Changes {
  return {
    isEmpty: false,
    *frames() {
      const node = choosingNode(snapshot, request.nodeName);
      if (request.wantsNode) for (const item of nodeItems(snapshot, request.nodeName)) yield item.frame;
      for (const section of [serviceSection, podSection, anonymousSection]) {
        for (const piece of piecesOf(snapshot, section === serviceSection ? "" : "/")) {
          const frame = piece.concernedNodes.has(node.name)
            ? join(snapshot, piece.keys, section, request, node)
            : sharedFrame(snapshot, piece, section, request, node.zone);
          if (frame.length > 0) yield frame;
        }
      }
    },
  };
}

interface Piece {
  readonly keys: readonly string[];
  readonly concernedNodes: ReadonlySet<string>;
  /** Frames by section and audience. */
  readonly shared: Map<string, Frame>;
}

const pieces = new WeakMap<Snapshot, Map<string, readonly Piece[]>>();

/**
 * The Services in the order of their items' paths: "a-b" comes after "a", but "a-b/pod" before "a/pod". `suffix` is what
 * follows the Service's path.
 */
function piecesOf(snapshot: Snapshot, suffix: "" | "/"): readonly Piece[] {
  const bySuffix = getOrMake(pieces, snapshot, () => new Map<string, readonly Piece[]>());
  return getOrMake(bySuffix, suffix, () => {
    const keys = [...snapshot.services.keys()].sort((a, b) => compareText(a + suffix, b + suffix));
    return Array.from({ length: Math.ceil(keys.length / servicesPerPiece) }, (_, index) =>
      makePiece(snapshot, keys.slice(index * servicesPerPiece, (index + 1) * servicesPerPiece)),
    );
  });
}

function makePiece(snapshot: Snapshot, keys: readonly string[]): Piece {
  const nodes = keys.flatMap((key) => [...concernedNodes(snapshot.slicesByService.get(key) ?? noSlices)]);
  return { keys, concernedNodes: new Set(nodes), shared: new Map() };
}

function sharedFrame(snapshot: Snapshot, piece: Piece, section: number, request: LocalRequest, zone: string): Frame {
  const audience = `${section} ${request.isExtended} ${zone} ${request.proxyName}`;
  const stranger = { name: "", zone };
  return getOrMake(piece.shared, audience, () => join(snapshot, piece.keys, section, request, stranger));
}

function join(
  snapshot: Snapshot,
  keys: readonly string[],
  section: number,
  request: LocalRequest,
  node: ChoosingNode,
): Frame {
  const frames: Frame[] = [];
  for (const item of serviceItems(snapshot, keys, request, node)) if (item.section === section) frames.push(item.frame);
  return Buffer.concat(frames);
}
