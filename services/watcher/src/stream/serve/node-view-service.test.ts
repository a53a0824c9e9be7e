import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { viewTargetIn } from "../../items/view-target.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";
import { wholeView } from "../delta/whole-view.ts";
import { CollectedView } from "./collected-view.ts";

/** Endpoints of each Service: none, one, and more than one step and one message have. */
const sizes = { empty: 0, one: 1, "quoted-ü": 3, large: 1_100 };

let store: Store;
let server: TestServer;

beforeEach(async () => {
  store = new Store();
  const names = Object.entries(sizes);
  store.replace({
    services: names.map(([name]) => service({ name, annotations: { text: '"}]' } })),
    slices: names.map(([name, count], at) =>
      slice(
        Array.from({ length: count }, (_, pod) => endpoint(`10.${at}.${pod >> 8}.${pod & 255}`)),
        { name, serviceName: name },
      ),
    ),
    nodes: [node("n1")],
  });
  server = await serveStore(store);
});

afterEach(() => server.stop());

const formats: { name: string; make: (baseUrl: string) => Transport }[] = [true, false].flatMap((useBinaryFormat) => {
  const format = useBinaryFormat ? "protobuf" : "JSON";
  return [
    {
      name: `Connect over HTTP/1.1, ${format}`,
      make: (baseUrl) => createConnectTransport({ baseUrl, useBinaryFormat, httpVersion: "1.1" }),
    },
    {
      name: `Connect over HTTP/2, ${format}`,
      make: (baseUrl) => createConnectTransport({ baseUrl, useBinaryFormat, httpVersion: "2" }),
    },
    { name: `gRPC, ${format}`, make: (baseUrl) => createGrpcTransport({ baseUrl, useBinaryFormat }) },
    {
      name: `gRPC-Web, ${format}`,
      make: (baseUrl) => createGrpcWebTransport({ baseUrl, useBinaryFormat, httpVersion: "1.1" }),
    },
  ];
});

test.each(formats)("GetNodeView returns all Services with all their endpoints over $name", async ({ make }) => {
  const client = createClient(NodeViewService, make(`http://${server.address}`));
  const view = await client.getNodeView({ nodeName: "n1" });
  expect(view.node?.Name).toBe("n1");
  expect(view.revision).toBe(BigInt(store.snapshot.revision));
  const counts = view.items.map((item) => [
    item.service?.Name,
    new Set(item.endpoints.map((one) => one.IPs?.V4[0])).size,
  ]);
  expect(counts).toEqual(Object.entries(sizes).sort(([a], [b]) => (a < b ? -1 : 1)));
  store.replace({ services: [], slices: [], nodes: [] });
  expect(await client.getNodeView({ nodeName: "n1" })).toMatchObject({ items: [] });
  await expect(client.getNodeView({ nodeName: "n".repeat(254) })).rejects.toThrow("invalid_argument");
});

test.each(formats)("WatchNodeView divides a large batch over $name", async ({ make }) => {
  const client = createClient(NodeViewService, make(`http://${server.address}`));
  const stop = new AbortController();
  const batch: (string | undefined)[] = [];
  for await (const { ops } of client.watchNodeView({ nodeName: "n1" }, { signal: stop.signal })) {
    expect(ops.length).toBeLessThanOrEqual(500);
    batch.push(...ops.map(({ Op: op }) => op.case));
    if (batch.at(-1) === "Sync") break;
  }
  stop.abort();
  const total = Object.values(sizes).reduce((sum, count) => sum + count + 1, 1);
  expect(batch).toEqual(["Reset", ...new Array<string>(total).fill("Set"), "Sync"]);
});

test("GetNodeView does not return a part of the view after its deadline", async () => {
  const pods = Array.from({ length: 20_000 }, (_, pod) => endpoint(`10.9.${pod >> 8}.${pod & 255}`));
  store.replace({ services: [service()], slices: [slice(pods)], nodes: [node("n1")] });
  const answers = ["application/json", "application/proto"].map((type) =>
    fetch(`http://${server.address}/kpng.view.v1.NodeViewService/GetNodeView`, {
      method: "POST",
      headers: { "content-type": type, "connect-timeout-ms": "1" },
      body: type === "application/json" ? "{}" : "",
    }),
  );
  for (const answer of await Promise.all(answers)) {
    expect(answer.status).toBe(504);
    expect(await answer.json()).toMatchObject({ code: "deadline_exceeded" });
  }
});

test("each step of GetNodeView collects or encodes at most 256 endpoints", () => {
  const request = { nodeName: "n1", proxyName: "", isExtended: true, wantsNode: true };
  const view = new CollectedView();
  const { frames } = wholeView(store.snapshot, viewTargetIn(store.snapshot, request));
  const steps = [...view.collect(frames())].length;
  expect(steps).toBeGreaterThan(1_100 / 256);
  const pieces = [...view.jsonItems()];
  const endpointsIn = (piece: string): number => piece.match(/"10\.\d\./g)?.length ?? 0;
  expect(Math.max(...pieces.map(endpointsIn))).toBe(256);
  expect(JSON.parse(pieces.join(""))).toHaveLength(Object.keys(sizes).length);
});
