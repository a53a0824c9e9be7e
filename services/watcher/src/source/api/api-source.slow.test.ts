import { create } from "@bufbuild/protobuf";
import { createRouterTransport } from "@connectrpc/connect";
import { Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeEndpointInfo, encodeServiceInfo } from "@kpng/model/wire/global-message.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { Registry } from "prom-client";
import { afterEach, describe, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";
import type { ObjectChange } from "../source.ts";
import { apiSource } from "./api-source.ts";
import { estimateOpBytes, GlobalItems } from "./global-items.ts";

const byText = (a: unknown, b: unknown): number => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);

/**
 * All objects of a store in a fixed order. Slices without endpoints are omitted, because the stream does not carry
 * them.
 */
function contentOf({ snapshot }: Store): unknown {
  const slices = [...snapshot.slicesByService.values()]
    .flat()
    .filter(({ endpoints }) => endpoints.length > 0)
    .map((one) => ({ ...one, endpoints: [...one.endpoints].sort(byText) }));
  return [snapshot.services.values(), slices, snapshot.nodes.values()].map((all) =>
    JSON.parse(JSON.stringify([...all].sort(byText))),
  );
}

test("applying the changes of batches gives the same state as replacing everything", () => {
  for (let seed = 1; seed <= 50; seed++) {
    const random = makeRandomBelow(makeRandom(seed));
    const [items, replayed] = [new GlobalItems(), new GlobalItems()];
    const [changed, replaced] = [new Store(), new Store()];
    let history: ((items: GlobalItems) => void)[] = [];
    for (let batch = 0; batch < 20; batch++) {
      if (random(8) === 0) {
        items.clear();
        history = [];
      }
      for (let op = random(8); op > 0; op--) {
        const name = ["a", "b"][random(2)] ?? "";
        const path = `ns|${name}|${name}-${random(2)}|${random(3)}`;
        const { endpoints, ...head } = slice([endpoint(`10.1.0.${random(3)}`)], {
          name: path.split("|")[2] ?? "",
          serviceName: name,
        });
        const [one] = endpoints;
        if (one === undefined) throw new Error("no endpoint");
        const value = random(3);
        const step = [
          (to: GlobalItems) =>
            to.change({ kind: "put-service", service: service({ name, healthCheckNodePort: value }) }),
          (to: GlobalItems) => to.change({ kind: "put-node", node: node(name, { zone: `z${value}` }) }),
          (to: GlobalItems) => to.putEndpoint(path, { slice: head, endpoint: one }),
          (to: GlobalItems) => to.delete(SetName.GlobalServiceInfos, `ns|${name}||`),
          (to: GlobalItems) => to.delete(SetName.GlobalNodeInfos, `|${name}||`),
          (to: GlobalItems) => to.delete(SetName.GlobalEndpointInfos, path),
        ][random(6)];
        if (step === undefined) throw new Error("no step");
        step(items);
        history.push(step);
      }
      items.deliverTo(changed);
      replayed.clear();
      for (const step of history) step(replayed);
      replayed.deliverTo(replaced);
      expect(contentOf(changed), `seed ${seed}, batch ${batch}`).toEqual(contentOf(replaced));
    }
  }
});

describe("a relay", () => {
  const stop = new AbortController();
  let running: Promise<void> = Promise.resolve();
  const servers: TestServer[] = [];

  afterEach(async () => {
    stop.abort();
    await running;
    for (const server of servers.splice(0)) await server.stop();
  });

  test("follows its upstream through changes, and through a restart with another state", async () => {
    const upstream = new Store();
    upstream.replace({
      services: [service(), service({ name: "other" })],
      slices: [slice([endpoint("10.1.0.1"), endpoint("10.1.0.2")])],
      nodes: [node("n1")],
    });
    const first = await serveStore(upstream);
    const store = new Store();
    const metrics = new Registry();
    const isConnected = async () =>
      (await metrics.metrics()).includes('kpng_source_connected{source="api",kind="all"} 1\n');
    const source = apiSource({
      transport: dial({ api: first.address }),
      sink: store,
      log: createLog("error", () => undefined),
      health: new Health(),
      metrics,
      backoff: { minMs: 10, maxMs: 20 },
    });
    running = source.run(stop.signal);
    expect(await isConnected()).toBe(false);
    await expect.poll(() => contentOf(store)).toEqual(contentOf(upstream));
    await expect.poll(isConnected).toBe(true);
    const steps: readonly (readonly ObjectChange[])[] = [
      [{ kind: "put-slice", slice: slice([endpoint("10.1.0.2")]) }],
      [
        { kind: "put-node", node: node("n2", { zone: "z" }) },
        { kind: "delete-service", key: "ns/other" },
      ],
      [{ kind: "delete-slice", key: "ns/web/web-a" }],
      [{ kind: "delete-node", name: "n1" }],
    ];
    for (const changes of steps) {
      upstream.apply(changes);
      await expect.poll(() => contentOf(store)).toEqual(contentOf(upstream));
    }
    await first.stop();
    await expect.poll(isConnected).toBe(false);
    const older = new Store();
    older.replace({ services: [service({ name: "older" })], slices: [], nodes: [] });
    servers.push(await serveStore(older, { listen: [`tcp://${first.address}`] }));
    await expect.poll(() => contentOf(store)).toEqual(contentOf(older));
    await expect.poll(isConnected).toBe(true);
  });

  test("has its upstream's position only together with its upstream's state, also when nearly everything goes", async () => {
    const ended = new AbortController();
    const upstream = new Store();
    const show = (version: bigint, names: readonly string[]): void => {
      const versions = { services: version, slices: version, nodes: version };
      const services = names.map((name) => service({ name }));
      upstream.replace({ services, slices: [], nodes: [] }, { source: "kube", receivedAtMs: 0, versions });
    };
    show(
      10n,
      Array.from({ length: 20 }, (_, index) => `s${index}`),
    );
    let server = await serveStore(upstream);
    const store = new Store();
    const states: string[] = [];
    store.observe(({ next }) => states.push(`${next.services.size} at ${next.position.services}`));
    const relay = apiSource({
      transport: dial({ api: server.address }),
      sink: store,
      log: createLog("error", () => undefined),
      health: new Health(),
      metrics: new Registry(),
      backoff: { minMs: 10, maxMs: 20 },
    }).run(ended.signal);
    await expect.poll(() => store.snapshot.services.size).toBe(20);
    const { address } = server;
    await server.stop();
    show(30n, ["new"]);
    server = await serveStore(upstream, { listen: [`tcp://${address}`] });
    await expect.poll(() => store.snapshot.services.get("ns/new")).toBeDefined();
    show(40n, []);
    await expect.poll(() => store.position.services).toBe(40n);
    ended.abort();
    await relay;
    await server.stop();
    expect(states).toEqual(["20 at 10", "1 at 30", "0 at 40"]);
  });

  test("keeps a state within its limit and reconnects when a batch of its upstream has no end", {
    timeout: 60_000,
  }, async () => {
    let streams = 0;
    const put = (name: string) => {
      const ref = { Set: SetName.GlobalServiceInfos, Path: `ns|${name}||` };
      return { Op: { case: "Set" as const, value: { Ref: ref, Bytes: encodeServiceInfo(service({ name }), true) } } };
    };
    const sync = { Op: { case: "Sync" as const, value: {} } };
    const transport = createRouterTransport(({ service: add }) => {
      add(Sets, {
        async *watch() {
          streams += 1;
          yield { Op: { case: "Reset" as const, value: {} } };
          yield put("s0");
          if (streams === 1) {
            yield sync;
            return;
          }
          for (let index = 1; index < 1_000_000; index++) yield put(`s${index}`);
        },
      });
    });
    const store = new Store();
    const metrics = new Registry();
    const lines: string[] = [];
    const ended = new AbortController();
    const relay = apiSource({
      transport,
      sink: store,
      log: createLog("error", (line) => lines.push(line)),
      health: new Health(),
      metrics,
      backoff: { minMs: 10, maxMs: 20 },
      maxBatchBytes: 1_000_000,
    }).run(ended.signal);
    await expect.poll(() => streams, { timeout: 30_000 }).toBeGreaterThanOrEqual(4);
    ended.abort();
    await relay;
    expect(store.snapshot.services.size).toBe(1);
    const refused = lines.filter((line) => line.includes("[STATE_TOO_LARGE]") && line.includes("--max-view-size"));
    expect(refused.length).toBeGreaterThanOrEqual(2);
    expect(await metrics.metrics()).toMatch(/kpng_source_disconnects_total [3-9]/);
  });
});

test("a first batch of 250 000 endpoints is within the limit of a relay with 1.5 GiB, also twice, and long names count", () => {
  const bytesWith = (serviceName: string, pod: string, nodeName: string): number => {
    const one = endpoint("10.123.123.123", { podName: `${serviceName}${pod}`, nodeName });
    const ref = { Set: SetName.GlobalEndpointInfos, Path: `default|${serviceName}|${serviceName}-a|10.123.123.123` };
    const value = { Ref: ref, Bytes: encodeEndpointInfo(slice([one], { serviceName }), one, true) };
    return estimateOpBytes(create(OpItemSchema, { Op: { case: "Set", value } })) * 250_000;
  };
  const short = bytesWith("service-1234", "-6f7c9b8d4-42", "node-123");
  const longName = "checkout-payments-gateway-1234";
  const long = bytesWith(longName, "-6f7c9b8d4-x8k2q", "ip-10-0-123-45.eu-central-1.compute.internal");
  // The path has the name of the Service twice, and the item has the names of pod and node.
  expect(long - short).toBeGreaterThan(250_000 * (2 * 18 + 21 + 36));
  // The sizing guide names this limit. An original KPNG sends each endpoint twice.
  expect(2 * long).toBeLessThan((1_536 * 1_024 ** 2 * 3) / 8);
});
