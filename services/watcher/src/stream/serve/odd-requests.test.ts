import { once } from "node:events";
import { connect } from "node:http2";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let server: TestServer;

beforeEach(async () => {
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  server = await serveStore(store);
});

afterEach(() => server.stop());

const path = "/kpng.position.v1.PositionService/Check";

/** Sends a request, and returns the status and the text of the answer. */
async function answerTo(headers: Record<string, string>, body = "{}"): Promise<string> {
  const session = connect(`http://${server.address}`);
  const stream = session.request({ ":method": "POST", ":path": path, "content-type": "application/json", ...headers });
  stream.on("error", () => undefined);
  stream.end(body);
  const [answer] = await once(stream, "response");
  let text = "";
  for await (const chunk of stream) text += chunk;
  session.destroy();
  return `${answer[":status"]} ${text}`;
}

test.each([
  { name: "names a host that no URL can have", headers: { ":authority": "[[[" }, status: 200 },
  { name: "has an unknown path", headers: { ":path": "/nothing" }, status: 404 },
  { name: "calls Watch by another protocol than gRPC", headers: { ":path": "/localv1.Sets/Watch" }, status: 415 },
  { name: "is valid", headers: {}, status: 200 },
])("a request that $name gets an answer, and the server continues", async ({ headers, status }) => {
  expect(await answerTo(headers)).toMatch(new RegExp(`^${status} `));
  expect(await answerTo({})).toMatch(/^200 /);
});

test("a request of more than 16 KiB that the Connect library would decode is refused", async () => {
  const json = `{${" ".repeat(16 * 1024)}}`;
  expect(await answerTo({}, json)).toContain("resource_exhausted");
});
