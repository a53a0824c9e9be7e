import { zstdDecompressSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { Encoding, type OpItem, OpItemsSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { BucketDigests, hasBucket, itemDigest } from "@kpng/model/wire/digest.ts";
import { makePick, makeRandom } from "@kpng/process/random.ts";
import type { ObjectChange } from "@kpng/source/source.ts";
import { endpoint, httpPort, node, service, servicePort, slice } from "@kpng/source/testing/build.ts";
import { beforeEach, describe, expect, test } from "vitest";
import { valueIn } from "../../items/frames.ts";
import { digestOf, nodeViewOrder } from "../../items/item.ts";
import type { NodeViewRequest } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { expectedItems } from "../../testing/expected-items.ts";
import { opsIn } from "../../testing/ops-in.ts";
import { randomChange } from "../../testing/random-change.ts";
import { nodeProjection } from "./node-projection.ts";
import { type Changes, noChanges } from "./projection.ts";

// Compares node projections with the plain definition: makeServiceView for every Service.

/** Items of a subscriber: their bytes in hex, by `set path`. */
type ItemBytes = ReadonlyMap<string, string>;

/**
 * Returns the items of a subscriber after it applied changes to `before`, as a node does. Throws for an endpoint before
 * its Service, and for a Delete outside a batch of an item that the subscriber never had; see BatchOp in the proto
 * file.
 */
function applied(before: ItemBytes, changes: Changes): ItemBytes {
  const items = new Map(before);
  const known = new Set(before.keys());
  for (const piece of changes) {
    for (const op of opsIn(piece)) {
      if (op.Op.case === "Delete" && !known.has(keyOf(op)))
        throw new Error(`Delete of ${keyOf(op)}, which it never had`);
      for (const one of unpacked(op)) {
        applyOp(items, one);
        if (one.Op.case === "Set") known.add(keyOf(one));
      }
    }
  }
  return items;
}

/** *Shape:* `set path`; "" for an operation without an item. */
function keyOf({ Op: { case: kind, value } }: OpItem): string {
  const ref = kind === "Set" ? value.Ref : kind === "Delete" ? value : undefined;
  return ref === undefined ? "" : `${ref.Set} ${ref.Path}`;
}

/** Returns all operations of changes, unpacked. */
function* opsOf(changes: Changes): Generator<OpItem, void> {
  for (const piece of changes) for (const op of opsIn(piece)) yield* unpacked(op);
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

function applyOp(items: Map<string, string>, { Op: op }: OpItem): void {
  switch (op.case) {
    case "Set": {
      const { Set: set, Path: path = "" } = op.value.Ref ?? {};
      const service = `${SetName.ServicesSet} ${path.slice(0, path.lastIndexOf("/"))}`;
      if (set === SetName.EndpointsSet && !items.has(service)) throw new Error(`${path} precedes its Service`);
      items.set(`${set} ${path}`, Buffer.from(op.value.Bytes).toString("hex"));
      return;
    }
    case "Delete":
      items.delete(`${op.value.Set} ${op.value.Path}`);
      return;
    case "Reset":
      items.clear();
      return;
    case "Keep":
      for (const [key, bytes] of items) {
        const [set = "", path = ""] = key.split(" ");
        const { bucket } = itemDigest(Number(set) as SetName, path, Buffer.from(bytes, "hex"));
        if (!hasBucket(op.value.Buckets, bucket)) items.delete(key);
      }
      return;
    default:
      throw new Error(`unexpected ${op.case} among changes`);
  }
}

const nodeNames = ["n1", "n2", "n3", "stranger", ""];

const requests: readonly NodeViewRequest[] = nodeNames.flatMap((nodeName) => [
  { nodeName, proxyName: "", isExtended: true, wantsNode: true },
  { nodeName, proxyName: "", isExtended: true, wantsNode: true, takesBatches: true },
  { nodeName, proxyName: nodeName === "n1" ? "x" : "", isExtended: false, wantsNode: false },
]);

function plainItems(snapshot: Snapshot, request: NodeViewRequest): ItemBytes {
  const { sections } = nodeViewOrder;
  return new Map(
    [...expectedItems(snapshot, request)].map(({ section, path, frame }) => [
      `${sections[section]} ${path}`,
      Buffer.from(valueIn(frame)).toString("hex"),
    ]),
  );
}

function bytesOf(changes: Changes): string {
  return Buffer.concat([...changes]).toString("hex");
}

function checkAt(snapshot: Snapshot, request: NodeViewRequest, projection = nodeProjection(request)): void {
  const whole = [...projection.whole(snapshot)];
  expect(applied(new Map(), whole)).toEqual(plainItems(snapshot, request));
  if (!request.takesBatches) expect(opsOf(whole).every(({ Op: op }) => op.case === "Set")).toBe(true);
  const digest = [...expectedItems(snapshot, request)].reduce((sum, item) => sum ^ digestOf(item).hash, 0n);
  expect(projection.digest?.(snapshot)).toBe(digest);
  expect(nodeProjection(request).digest?.(snapshot)).toBe(digest);
}

function checkBetween(
  before: Snapshot,
  snapshot: Snapshot,
  request: NodeViewRequest,
  projection = nodeProjection(request),
) {
  const between = projection.between(before, snapshot);
  const changes = [...between];
  const [itemsBefore, items] = [plainItems(before, request), plainItems(snapshot, request)];
  expect(applied(itemsBefore, changes)).toEqual(items);
  const ops = [...opsOf(changes)];
  // If the class of the node has changed, its view begins again.
  if (request.takesBatches || ops.some(({ Op: op }) => op.case === "Reset")) return;
  const puts = [...items].filter(([key, bytes]) => itemsBefore.get(key) !== bytes).map(([key]) => `Set ${key}`);
  const deletes = [...itemsBefore.keys()].filter((key) => !items.has(key)).map((key) => `Delete ${key}`);
  expect(ops.map((op) => `${op.Op.case} ${keyOf(op)}`).sort()).toEqual([...puts, ...deletes].sort());
  expect(between === noChanges).toBe(ops.length === 0);
}

function checkResume(before: Snapshot, snapshot: Snapshot, request: NodeViewRequest): void {
  const digests = new BucketDigests();
  for (const item of expectedItems(before, request)) digests.toggle(digestOf(item));
  const changes = nodeProjection(request).resume(snapshot, digests);
  expect(applied(plainItems(before, request), changes)).toEqual(plainItems(snapshot, request));
}

test("a projection equals the plain definition after random changes", { timeout: 120_000 }, () => {
  for (let seed = 1; seed <= 10; seed += 1) {
    const random = makeRandom(seed);
    const pick = makePick(random);
    const store = new Store();
    store.replace({ services: [], slices: [], nodes: [] });
    // One projection sees every snapshot; `lagging` is an older snapshot.
    const followers = requests.map((request) => ({ request, projection: nodeProjection(request) }));
    let lagging = store.snapshot;
    for (let step = 0; step < 12; step += 1) {
      const before = store.snapshot;
      store.apply(Array.from({ length: pick(1, 1, 2, 5) }, () => randomChange(pick)));
      const { snapshot } = store;
      for (const { request, projection } of followers) {
        const label = `seed ${seed}, step ${step}, ${JSON.stringify(request)}`;
        try {
          checkBetween(before, snapshot, request, projection);
          checkAt(snapshot, request, projection);
          checkBetween(lagging, snapshot, request);
          if (step % 3 === 0) checkResume(lagging, snapshot, request);
        } catch (error) {
          throw new Error(label, { cause: error });
        }
      }
      if (pick(true, false, false)) lagging = before;
    }
  }
});

test("a projection equals the plain definition while many Services are added and deleted", { timeout: 120_000 }, () => {
  const random = makeRandom(7);
  const pick = makePick(random);
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  // "a-1" comes before "a/…" and after "a": the two orders of Services differ.
  const names = Array.from({ length: 400 }, (_, index) => pick(`a${index}`, `a${index >> 1}-${index}`));
  const [some] = requests;
  let lagging = store.snapshot;
  for (let step = 0; step < 12; step += 1) {
    const before = store.snapshot;
    const changes = Array.from({ length: step === 0 ? 300 : pick(1, 20, 150) }, (): ObjectChange[] => {
      const name = pick(...names);
      if (step > 6 || pick(true, false, false)) return [{ kind: "delete-service", key: `ns/${name}` }];
      const made = slice([endpoint("10.1.0.1", { podName: "p", nodeName: pick("n1", "n2") })], { serviceName: name });
      return [
        { kind: "put-service", service: service({ name }) },
        { kind: "put-slice", slice: made },
      ];
    });
    store.apply(changes.flat());
    for (const request of some === undefined ? [] : [some, { ...some, takesBatches: true }]) {
      checkAt(store.snapshot, request);
      checkBetween(before, store.snapshot, request);
      checkResume(before, store.snapshot, request);
      checkResume(lagging, store.snapshot, request);
    }
    if (pick(true, false, false)) lagging = before;
  }
});

test("a node that hints name gets its own dual-stack endpoint once, and no change of it", () => {
  const store = new Store();
  const admin = { name: "admin", port: 9000, protocol: "TCP" } as const;
  const dualStack = endpoint(["10.1.0.1", "fd00::1"], {
    nodeName: "n1",
    ports: [httpPort, admin],
    hintedNodes: ["n1"],
  });
  store.replace({
    services: [
      service({ externalTrafficPolicy: "Local", ports: [servicePort(), servicePort({ ...admin, port: 90 })] }),
    ],
    slices: [
      slice([endpoint("10.1.0.1", { nodeName: "n1", ports: [admin] })], { name: "a" }),
      slice([dualStack, endpoint("fd00::2", { nodeName: "n2", ports: [httpPort, admin] })], { name: "s" }),
    ],
    nodes: [node("n1"), node("n2")],
  });
  const request = { nodeName: "n1", proxyName: "", isExtended: true, wantsNode: false };
  checkAt(store.snapshot, request);
  const before = store.snapshot;
  const added = endpoint("10.1.0.9", { nodeName: "n2", ports: [httpPort], hintedNodes: ["n2"] });
  store.apply([{ kind: "put-slice", slice: slice([added], { name: "z" }) }]);
  checkBetween(before, store.snapshot, request);
});

describe("a subscriber that resumes", () => {
  const names = Array.from({ length: 2_000 }, (_, index) => `s${index}`);
  const request = { nodeName: "stranger", proxyName: "", isExtended: true, wantsNode: false };
  const made = (name: string, port: number) =>
    slice([endpoint("10.1.0.1", { podName: "p", ports: [{ ...httpPort, port }] })], { serviceName: name });
  let store: Store;
  let revisions = 0;
  beforeEach(() => {
    store = new Store();
    // An index follows the snapshots with the highest revision, and those of earlier tests are of other stores.
    revisions += 100;
    while (store.snapshot.revision < revisions) {
      store.apply([{ kind: "put-service", service: service({ name: `r${store.snapshot.revision}` }) }]);
    }
    store.replace({
      services: names.map((name) => service({ name })),
      slices: names.map((name) => made(name, 1)),
      nodes: [],
    });
  });
  const changePorts = (count: number, port: number): void =>
    store.apply(names.slice(0, count).map((name) => ({ kind: "put-slice", slice: made(name, port) })));
  const resumedBytes = (before: Snapshot, takesBatches: boolean): number => {
    const digests = new BucketDigests();
    for (const item of expectedItems(before, request)) digests.toggle(digestOf(item));
    checkResume(before, store.snapshot, { ...request, takesBatches });
    return bytesOf(nodeProjection({ ...request, takesBatches }).resume(store.snapshot, digests)).length / 2;
  };

  test("gets the buckets that differ, compressed if it understands batches", () => {
    const before = store.snapshot;
    changePorts(20, 2);
    const wholeBytes = bytesOf(nodeProjection(request).whole(store.snapshot)).length / 2;
    expect(resumedBytes(before, false)).toBeLessThan(wholeBytes / 10);
    // Buckets of few items are hardly shorter when they are compressed.
    expect(resumedBytes(before, true)).toBeLessThan(resumedBytes(before, false));
  });

  test("gets the whole view in compressed batches if few buckets match", () => {
    const before = store.snapshot;
    changePorts(2_000, 2);
    expect(resumedBytes(before, true)).toBeLessThan(resumedBytes(before, false) * 0.7);
  });
});

/** A slice of 300 pods, which differ in everything from those with another `first`. */
const manyPods = (first: number, fieldsOf: (index: number) => Parameters<typeof endpoint>[1]) =>
  slice(
    Array.from({ length: 300 }, (_, index) =>
      endpoint(`10.1.${first}.${index % 256}`, {
        podName: `web-${first}-${index}`,
        ports: [{ ...httpPort, port: 8000 + index }],
        ...fieldsOf(index),
      }),
    ),
  );

test("many changes at once are compressed, only for a subscriber that understands batches", () => {
  const store = new Store();
  const pods = (first: number) => manyPods(first, (index) => ({ nodeName: `n${index % 3}` }));
  store.replace({ services: [service()], slices: [pods(1)], nodes: [] });
  const before = store.snapshot;
  store.apply([{ kind: "put-slice", slice: pods(2) }]);
  for (const nodeName of ["n1", "stranger"]) {
    const request = { nodeName, proxyName: "", isExtended: true, wantsNode: false };
    const packed = nodeProjection({ ...request, takesBatches: true });
    checkBetween(before, store.snapshot, { ...request, takesBatches: true });
    const bytes = bytesOf(packed.between(before, store.snapshot)).length / 2;
    const plainBytes = bytesOf(nodeProjection(request).between(before, store.snapshot)).length / 2;
    expect(bytes).toBeLessThan(plainBytes * 0.6);
    expect([...opsOf(nodeProjection(request).between(before, store.snapshot))]).toHaveLength(600);
  }
});

test("a node is sent no delete for an endpoint of its class that it never had, outside compressed changes", () => {
  const store = new Store();
  const pods = (first: number) =>
    manyPods(first, (index) => ({ nodeName: "n2", hintedNodes: [index === 0 ? "n1" : "n2"] }));
  store.replace({ services: [service()], slices: [pods(1)], nodes: [] });
  const before = store.snapshot;
  store.apply([{ kind: "put-slice", slice: pods(2) }]);
  const request = { nodeName: "n1", proxyName: "", isExtended: true, wantsNode: false, takesBatches: true };
  checkBetween(before, store.snapshot, request);
});
