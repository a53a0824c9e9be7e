import { once } from "node:events";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { BucketDigests } from "@kpng/model/wire/digest.ts";
import { pushbackOf } from "@kpng/process/connection/reconnect.ts";
import { createLog } from "@kpng/process/log.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { node, service } from "../../testing/build.ts";
import { dialHttp2, RawWatch } from "../../testing/raw-watch.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let store: Store;
let server: TestServer;
const streams: RawWatch[] = [];
let lines: string[] = [];

/** No stream is served before the store has a state. */
const tickets = 16;
const HeldDigests = new BucketDigests().toBytes();

beforeEach(async () => {
  store = new Store();
  lines = [];
  const log = createLog("info", (line) => lines.push(line));
  server = await serveStore(store, { maxWaiting: tickets, drainMs: 0, log });
});

afterEach(async () => {
  for (const { session } of streams.splice(0)) session.destroy();
  await server.stop();
});

function fillStore(): void {
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
}

function open(request?: ConstructorParameters<typeof RawWatch>[1]): RawWatch {
  const watch = new RawWatch(dialHttp2(server.address), request);
  streams.push(watch);
  return watch;
}

async function metric(name: string, view: string): Promise<number> {
  const values = (await server.metrics.getSingleMetric(name)?.get())?.values ?? [];
  return values.find(({ labels }) => labels.view === view)?.value ?? 0;
}

async function fill(): Promise<RawWatch[]> {
  const watches = Array.from({ length: tickets }, () => open());
  await expect.poll(() => metric("kpng_admission_beginning", "whole")).toBe(tickets);
  return watches;
}

test.each([
  { name: "begins", request: { NodeName: "n1" } },
  { name: "resumes", request: { NodeName: "n1", HeldDigests } },
])("a stream that $name gets its response headers at once, before the first lists", async ({ request }) => {
  const waiting = open(request);
  const [headers] = await once(waiting.stream, "response");
  expect(headers[":status"]).toBe(200);
  expect(waiting.byteCount).toBe(0);
  fillStore();
  await waiting.received(40);
});

test("a refused stream is told when to retry, and is admitted once other streams have their views", async () => {
  const admitted = await fill();
  const refused = open();
  await refused.ended;
  expect(refused.status).toBe("14");
  expect(Number(refused.pushback)).toBeGreaterThan(0);
  expect(refused.byteCount).toBe(0);
  expect(await metric("kpng_admission_refused_total", "whole")).toBe(1);
  await open().ended;
  expect(lines.filter((line) => line.includes("stream refused"))).toHaveLength(1);
  fillStore();
  await Promise.all(admitted.map((watch) => watch.received(40)));
  const again = open();
  await again.received(40);
  expect(await metric("kpng_admission_beginning", "whole")).toBe(0);
});

test("the refusal of a call does not close the connection", async () => {
  await fill();
  const session = dialHttp2(server.address);
  const first = new RawWatch(session);
  streams.push(first);
  await first.ended;
  expect(first.status).toBe("14");
  fillStore();
  await new RawWatch(session).received(40);
});

test("streams that resume and streams that begin do not wait for each other", async () => {
  await fill();
  for (let count = 0; count < tickets; count++) open({ NodeName: "n1", HeldDigests });
  await expect.poll(() => metric("kpng_admission_beginning", "resumed")).toBe(tickets);
  const refused = open({ NodeName: "n1", HeldDigests });
  await refused.ended;
  expect(refused.status).toBe("14");
  expect(await metric("kpng_admission_refused_total", "whole")).toBe(0);
});

test("a stream that disconnects frees its ticket", async () => {
  const admitted = await fill();
  for (const { session } of admitted) session.destroy();
  await expect.poll(() => metric("kpng_admission_beginning", "whole")).toBe(0);
  await fill();
});

test.each<{ name: string; make: (baseUrl: string) => Transport }>([
  { name: "Connect", make: (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2" }) },
  { name: "gRPC", make: (baseUrl) => createGrpcTransport({ baseUrl }) },
])("the refusal is the same over $name", async ({ make }) => {
  await fill();
  const client = createClient(NodeViewService, make(`http://${server.address}`));
  const error = await Array.fromAsync(client.watchNodeView({ nodeName: "n1" })).catch(ConnectError.from);
  if (!(error instanceof ConnectError)) throw new Error("it was let in");
  expect(error.code).toBe(Code.Unavailable);
  expect(error.rawMessage).toBe("16 streams wait for their first batch");
  expect(pushbackOf(error)).toBeGreaterThan(0);
});
