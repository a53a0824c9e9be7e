import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

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
      name: `Connect, ${format}`,
      make: (baseUrl) => createConnectTransport({ baseUrl, useBinaryFormat, httpVersion: "2" }),
    },
    { name: `gRPC, ${format}`, make: (baseUrl) => createGrpcTransport({ baseUrl, useBinaryFormat }) },
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
  for (const nodeName of ["", "n".repeat(254)]) {
    await expect(client.getNodeView({ nodeName })).rejects.toThrow("invalid_argument");
  }
});

test("a view of more than 5 000 objects is refused by GetNodeView, with the reason each time", async () => {
  const pods = Array.from({ length: 5_001 }, (_, pod) => endpoint(`10.9.${pod >> 8}.${pod & 255}`));
  store.replace({ services: [service()], slices: [slice(pods)], nodes: [node("n1")] });
  const client = createClient(NodeViewService, createGrpcTransport({ baseUrl: `http://${server.address}` }));
  // Each answer takes the thread so long that a timer of the server is often due when it ends.
  for (let count = 0; count < 40; count++) {
    await expect(client.getNodeView({ nodeName: "n1" })).rejects.toThrow("call localv1.Sets/Watch");
  }
});
