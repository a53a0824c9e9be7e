import { compareText } from "@kpng/model/text-order.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { choosingNode } from "../view/node.ts";
import type { Frame } from "./frames.ts";
import { getOrMake } from "./get-or-make.ts";
import {
  anonymousSection,
  audienceOf,
  concernedNodes,
  type LocalRequest,
  nodeItems,
  noSlices,
  podSection,
  serviceItems,
  serviceSection,
} from "./local-units.ts";
import type { Changes, Item } from "./projection.ts";

/** Services whose frames make one piece. Smaller pieces are shared more often, larger ones cost fewer writes. */
const servicesPerPiece = 16;

/**
 * A whole view as puts.
 *
 * It is written in pieces. A piece without a Service that concerns the node itself is the same bytes for every node of
 * the zone, made once for a snapshot: a thousand nodes that come at once share all but a few pieces.
 *
 * *Bound:* while the frames are taken, the items of the pieces that concern the node.
 */
export function wholeView(snapshot: Snapshot, request: LocalRequest): Changes {
  return {
    isEmpty: false,
    *frames() {
      const node = choosingNode(snapshot, request.nodeName);
      // Pieces that concern the node are made for it alone: each Service of them once, not once for each section.
      const own = new Map<string, readonly Item[]>();
      const itemsOf = (key: string) => getOrMake(own, key, () => [...serviceItems(snapshot, [key], request, node)]);
      if (request.wantsNode) for (const item of nodeItems(snapshot, request.nodeName)) yield item.frame;
      for (const section of [serviceSection, podSection, anonymousSection]) {
        for (const piece of piecesOf(snapshot, section === serviceSection ? "" : "/")) {
          const frame = piece.concernedNodes.has(node.name)
            ? join(piece.keys.flatMap(itemsOf), section)
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
  /** Of its Services. */
  readonly proxyNames: ReadonlySet<string>;
  /** Frames by section and audience. */
  readonly shared: Map<string, Frame>;
}

const noFrame: Frame = new Uint8Array();

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
  const proxyNames = keys.map((key) => snapshot.services.get(key)?.proxyName ?? "");
  return { keys, concernedNodes: new Set(nodes), proxyNames: new Set(proxyNames), shared: new Map() };
}

function sharedFrame(snapshot: Snapshot, piece: Piece, section: number, request: LocalRequest, zone: string): Frame {
  // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
  if (!piece.proxyNames.has(request.proxyName)) return noFrame;
  const audience = `${section} ${audienceOf(request, zone)}`;
  const stranger = { name: "", zone };
  return getOrMake(piece.shared, audience, () => join(serviceItems(snapshot, piece.keys, request, stranger), section));
}

function join(items: Iterable<Item>, section: number): Frame {
  const frames: Frame[] = [];
  for (const item of items) if (item.section === section) frames.push(item.frame);
  return Buffer.concat(frames);
}
