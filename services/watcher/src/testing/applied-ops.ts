import { zstdDecompressSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { compareText } from "@kpng/model/collections.ts";
import { Encoding, type OpItem, OpItemsSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { hasBucket, itemDigest } from "@kpng/model/wire/digest.ts";
import { deleteFrame, opsIn } from "../items/frames.ts";
import type { Item, Order } from "../items/item.ts";
import type { Changes } from "../stream/delta/projection.ts";

/**
 * Items that a simulated subscriber holds: their bytes in hex, by `set path`.
 *
 * This file applies operations as a node does, so that tests can compare the result with a view that was computed from
 * scratch.
 */
export type Held = ReadonlyMap<string, string>;

/**
 * Returns the items of a subscriber after it applied changes to `before`. Throws for an endpoint before its Service, as
 * a backend does, and for a Delete outside a batch of an item that the subscriber never had; see BatchOp in the proto
 * file.
 */
export function applied(before: Held, changes: Changes): Held {
  const held = new Map(before);
  const known = new Set(before.keys());
  for (const piece of changes.frames()) {
    for (const op of opsIn(piece)) {
      if (op.Op.case === "Delete" && !known.has(`${op.Op.value.Set} ${op.Op.value.Path}`))
        throw new Error(`Delete of ${op.Op.value.Path}, which the subscriber never had`);
      for (const one of unpacked(op)) {
        applyOp(held, one);
        const {
          Op: { case: kind, value },
        } = one;
        if (kind === "Set") known.add(`${value.Ref?.Set} ${value.Ref?.Path}`);
      }
    }
  }
  return held;
}

/**
 * The plain definition of changes: puts and deletes in the order of the phases; within one, puts ascend by path and
 * deletes descend.
 */
export function plainChanges(sent: Iterable<Item>, wanted: Iterable<Item>, { sections, phases }: Order): Changes {
  const keyOf = ({ section, path }: Item): string => `${section} ${path}`;
  const [old, now] = [sent, wanted].map((items) => new Map([...items].map((item) => [keyOf(item), item]))) as [
    Map<string, Item>,
    Map<string, Item>,
  ];
  const puts = [...now].filter(([key, { frame }]) => Buffer.compare(old.get(key)?.frame ?? noFrame, frame) !== 0);
  const deletes = [...old].filter(([key]) => !now.has(key));
  const frames = phases.flatMap(({ kind, section }) => {
    const items = (kind === "put" ? puts : deletes).map(([, item]) => item).filter((item) => item.section === section);
    const sorted = items.sort((a, b) => compareText(a.path, b.path));
    if (kind === "put") return sorted.map(({ frame }) => frame);
    return sorted.reverse().map(({ path }) => deleteFrame(sections[section] ?? 0, path));
  });
  return { isEmpty: frames.length === 0, frames: () => frames };
}

const noFrame = new Uint8Array();

/** Returns all operations of changes, unpacked. */
export function* opsOfChanges(changes: Changes): Generator<OpItem, void> {
  for (const piece of changes.frames()) for (const op of opsIn(piece)) yield* unpacked(op);
}

function* unpacked(item: OpItem): Iterable<OpItem> {
  const { Op: op } = item;
  if (op.case !== "Batch") {
    yield item;
    return;
  }
  const { Items: bytes, Size: size, Encoding: encoding } = op.value;
  const message = encoding === Encoding.Zstd ? zstdDecompressSync(bytes) : bytes;
  if (message.length !== size) throw new Error(`${message.length} bytes instead of the stated ${size}`);
  yield* fromBinary(OpItemsSchema, message).Items;
}

function applyOp(held: Map<string, string>, { Op: op }: OpItem): void {
  switch (op.case) {
    case "Set": {
      const { Set: set, Path: path = "" } = op.value.Ref ?? {};
      const service = `${SetName.ServicesSet} ${path.slice(0, path.lastIndexOf("/"))}`;
      if (set === SetName.EndpointsSet && !held.has(service)) throw new Error(`${path} precedes its Service`);
      held.set(`${set} ${path}`, Buffer.from(op.value.Bytes).toString("hex"));
      return;
    }
    case "Delete":
      held.delete(`${op.value.Set} ${op.value.Path}`);
      return;
    case "Reset":
      held.clear();
      return;
    case "Keep":
      for (const [key, bytes] of held) {
        const [set = "", path = ""] = key.split(" ");
        const { bucket } = itemDigest(Number(set) as SetName, path, Buffer.from(bytes, "hex"));
        if (!hasBucket(op.value.Buckets, bucket)) held.delete(key);
      }
      return;
    default:
      throw new Error(`unexpected ${op.case} among changes`);
  }
}
