import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { createLog } from "@kpng/process/log.ts";
import { endpoint, node, service, servicePort, slice } from "@kpng/source/testing/build.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { GrpcJsWatch } from "../../../../../test/peer/grpc-js-client.ts";
import { Store } from "../../store/store.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let store: Store;
let server: TestServer;
const watches: GrpcJsWatch[] = [];

beforeEach(async () => {
  store = new Store();
  server = await serveStore(store);
});

afterEach(async () => {
  for (const watch of watches.splice(0)) watch.close();
  await server.stop();
});

function watch(): GrpcJsWatch {
  const made = new GrpcJsWatch(server.address, "local");
  watches.push(made);
  return made;
}

function show(ops: readonly OpItem[]): string[] {
  return ops.map(({ Op: op }) =>
    op.case === "Set" ? `set ${op.value.Ref?.Path}` : op.case === "Delete" ? `delete ${op.value.Path}` : `${op.case}`,
  );
}

const web = {
  services: [service()],
  slices: [slice([endpoint("10.1.0.1", { podName: "web-1" })])],
  nodes: [node("n1")],
};
const empty = { services: [], slices: [], nodes: [] };

test("the first batch begins with Reset at once, and continues only when the store is synced", async () => {
  const one = watch();
  one.send({ NodeName: "n1" });
  expect((await one.next())?.Op.case).toBe("Reset");
  store.replace({ services: web.services, slices: web.slices });
  const next = one.next();
  const settled = await Promise.race([
    next.then(() => "told"),
    new Promise((resolve) => setImmediate(resolve, "held")),
  ]);
  expect(settled).toBe("held");
  store.replace({ nodes: web.nodes });
  expect((await next)?.Op).toMatchObject({ case: "Set", value: { Ref: { Path: "ns/web" } } });
});

test.each([
  { what: "a node name of more than 253 characters", request: { NodeName: "x".repeat(254) } },
  { what: "digests of an invalid length", request: { NodeName: "n1", HeldDigests: new Uint8Array(7) } },
])("$what is refused with INVALID_ARGUMENT", async ({ request }) => {
  store.replace(empty);
  await expect(watch().ask(request)).rejects.toMatchObject({ code: 3 });
});

test("a client that closed only its own direction gets its answer", async () => {
  const one = watch();
  one.send({ NodeName: "n1" });
  one.call.end();
  store.replace(empty);
  expect(show(await one.batch())).toEqual(["Reset", "Sync"]);
  expect(await one.next()).toBeUndefined();
});

test("a view that cannot be encoded ends the stream, and the watcher logs why", async () => {
  const lines: string[] = [];
  await server.stop();
  server = await serveStore(store, { log: createLog("error", (line) => lines.push(line)) });
  store.replace({ ...empty, services: [service({ ports: [servicePort({ port: 0.5 })] })] });
  await expect(watch().ask({ NodeName: "n1" })).rejects.toMatchObject({ code: 2 });
  expect(lines).toEqual([expect.stringMatching(/"rpc":"\/localv1.Sets\/Watch","reason":".*0\.5.*"a stream failed"/)]);
});

test("the message of an error arrives as it was written, with its punctuation", async () => {
  store.replace(empty);
  const one = watch();
  one.send({ Ack: { Applied: 99n } });
  await expect(one.next()).rejects.toMatchObject({ details: expect.stringContaining("99, ") });
});
