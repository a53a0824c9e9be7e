import { Feature, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { BucketDigests, hasBucket, itemDigest } from "@kpng/model/wire/digest.ts";
import { afterEach, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "../../../../../test/peer/grpc-js-client.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { serveStore } from "../../testing/serve-store.ts";

const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const names = Array.from({ length: 200 }, (_, index) => `s${index}`);

/** Replicas have stores of their own, filled in different orders. */
async function replica(order: readonly string[] = names): Promise<{ store: Store; address: string }> {
  const store = new Store();
  store.replace({
    services: order.map((name) => service({ name })),
    slices: order.map((name) =>
      slice(
        [
          endpoint("10.1.0.1", { nodeName: `n${Number(name.slice(1)) % 3}`, podName: `p${name}` }),
          endpoint("10.1.0.2"),
        ],
        {
          name: `${name}-a`,
          serviceName: name,
        },
      ),
    ),
    nodes: [node("n1", { zone: "z1" })],
  });
  const server = await serveStore(store);
  cleanups.push(server.stop);
  return { store, address: server.address };
}

type Held = Map<string, Uint8Array>;

/** Applies a batch as a subscriber does, and returns the number of puts. */
function apply(held: Held, ops: readonly OpItem[]): number {
  let puts = 0;
  for (const { Op: op } of ops) {
    if (op.case === "Reset") held.clear();
    if (op.case === "Keep") {
      const { Buckets: bits } = op.value;
      for (const [key, bytes] of held) if (!hasBucket(bits, digestOf(key, bytes).bucket)) held.delete(key);
    }
    if (op.case === "Set") {
      held.set(`${op.value.Ref?.Set} ${op.value.Ref?.Path}`, op.value.Bytes);
      puts += 1;
    }
    if (op.case === "Delete") held.delete(`${op.value.Set} ${op.value.Path}`);
  }
  return puts;
}

function digestOf(key: string, bytes: Uint8Array) {
  const [set = "", path = ""] = key.split(" ");
  return itemDigest(Number(set) as never, path, bytes);
}

function digests(held: Held): Uint8Array {
  const all = new BucketDigests();
  for (const [key, bytes] of held) all.toggle(digestOf(key, bytes));
  return all.toBytes();
}

const request = { NodeName: "n1", Features: [Feature.Extended, Feature.NodeItem] };

async function ask(address: string, extra: object = {}): Promise<OpItem[]> {
  const watch = new GrpcJsWatch(address, "local");
  try {
    return await watch.ask({ ...request, ...extra });
  } finally {
    watch.close();
  }
}

describe("a subscriber that sends digests of the items it holds", () => {
  test("gets no item again, even from another replica", async () => {
    const [one, other] = [await replica(), await replica([...names].reverse())];
    const held: Held = new Map();
    apply(held, await ask(one.address));
    expect(held.size).toBe(601);
    const again = await ask(other.address, { HeldDigests: digests(held) });
    expect(again.map(({ Op: op }) => op.case)).toEqual(["Keep", "Sync"]);
  });

  test("gets the items that changed and few others, and drops deleted items", async () => {
    const [one, other] = [await replica(), await replica()];
    const held: Held = new Map();
    apply(held, await ask(one.address));
    other.store.apply([
      { kind: "delete-service", key: "ns/s7" },
      { kind: "delete-slice", key: "ns/s7/s7-a" },
      { kind: "put-service", service: service({ name: "new" }) },
      { kind: "put-slice", slice: slice([endpoint("10.9.9.9")], { name: "s8-a", serviceName: "s8" }) },
    ]);
    const puts = apply(held, await ask(other.address, { HeldDigests: digests(held) }));
    const expected: Held = new Map();
    apply(expected, await ask(other.address));
    expect(new Map([...held].sort())).toEqual(new Map([...expected].sort()));
    expect(puts).toBeLessThan(30);
  });

  test("may hold the view of another node, which becomes the view of its own", async () => {
    const one = await replica();
    const held: Held = new Map();
    apply(held, await ask(one.address, { NodeName: "n2" }));
    apply(held, await ask(one.address, { HeldDigests: digests(held) }));
    const expected: Held = new Map();
    apply(expected, await ask(one.address));
    expect(held).toEqual(new Map([...held.keys()].map((key) => [key, expected.get(key)])));
    expect(held.size).toBe(expected.size);
  });

  test("gets changes after that, like any subscriber", async () => {
    const one = await replica();
    const held: Held = new Map();
    apply(held, await ask(one.address));
    const watch = new GrpcJsWatch(one.address, "local");
    cleanups.push(() => watch.close());
    await watch.ask({ ...request, HeldDigests: digests(held) });
    one.store.apply([{ kind: "delete-service", key: "ns/s1" }]);
    const ops = await watch.ask({ ...request });
    expect(ops.every(({ Op: op }) => op.case === "Delete" || op.case === "Sync")).toBe(true);
  });

  test("gets INVALID_ARGUMENT for digests of another length", async () => {
    const one = await replica();
    await expect(ask(one.address, { HeldDigests: new Uint8Array(7) })).rejects.toMatchObject({ code: 3 });
  });
});
