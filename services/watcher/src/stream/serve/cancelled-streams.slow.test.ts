import { spawn } from "node:child_process";
import { once } from "node:events";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { encodeRequest } from "../../testing/raw-watch.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let server: TestServer;

beforeEach(async () => {
  const store = new Store();
  // Enough for a whole view to need more than one write.
  store.replace(makeCluster({ services: 300, endpoints: 1, nodes: 1 }));
  server = await serveStore(store);
});

afterEach(() => server.stop());

/** A separate process, because its actions must not wait for the event loop of the server. */
const client = `
  import { connect } from "node:http2";
  const [address, frame, end] = process.argv.slice(1);
  const session = connect("http://" + address);
  session.on("error", () => undefined).setMaxListeners(0);
  const headers = { ":method": "POST", ":path": "/localv1.Sets/Watch", "content-type": "application/grpc" };
  let bytes = 0;
  const streams = Array.from({ length: 1200 }, () => {
    const stream = session.request(headers);
    stream.on("error", () => undefined).on("data", (chunk) => (bytes += chunk.length));
    stream.write(Buffer.from(frame, "hex"));
    return stream;
  });
  const seen = setInterval(() => {
    if (bytes < 100_000) return;
    clearInterval(seen);
    if (end === "destroy") session.destroy();
    else if (end === "exit") process.exit();
    else for (const stream of streams) stream.close(Number(end));
    setTimeout(() => process.exit(), 100);
  }, 1);
`;

test.each([
  { name: "its connection closes", end: "destroy" },
  { name: "its process exits", end: "exit" },
  { name: "it cancels its streams", end: "8" },
  { name: "it closes its streams without an error", end: "0" },
])("all streams of a client are released when $name", async ({ end }) => {
  for (let round = 0; round < 3; round++) {
    const args = [server.address, encodeRequest({ NodeName: "n1" }).toString("hex"), end];
    const child = spawn(process.execPath, ["--input-type=module", "--eval", client, ...args]);
    await once(child, "close");
    await expect.poll(() => server.subscribers.open.size).toBe(0);
  }
});
