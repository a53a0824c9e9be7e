import type { OutgoingHttpHeaders } from "node:http";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { postJson } from "../../testing/raw-watch.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let server: TestServer;

beforeEach(async () => {
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  server = await serveStore(store);
});

afterEach(() => server.stop());

/** Sends a request, and returns the status and the text of the answer. */
const answerTo = (headers: OutgoingHttpHeaders, body?: string) =>
  postJson(server.address, "/kpng.position.v1.PositionService/Check", body, headers);

test.each([
  { name: "names a host that no URL can have", headers: { ":authority": "[[[" }, status: 200 },
  { name: "has an unknown path", headers: { ":path": "/nothing" }, status: 404 },
  { name: "calls Watch by another protocol than gRPC", headers: { ":path": "/localv1.Sets/Watch" }, status: 415 },
  { name: "is valid", headers: {}, status: 200 },
])("a request that $name gets an answer, and the server continues", async ({ headers, status }) => {
  expect((await answerTo(headers)).status).toBe(status);
  expect((await answerTo({})).status).toBe(200);
});

test("a request of more than 16 KiB that the Connect library would decode is refused", async () => {
  const json = `{${" ".repeat(16 * 1024)}}`;
  expect((await answerTo({}, json)).answer).toContain("resource_exhausted");
});
