import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { serveStore, type TestServer } from "../../testing/serve-store.ts";

let server: TestServer;

beforeEach(async () => {
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  server = await serveStore(store, { keepalive: { intervalMs: 20, timeoutMs: 40 } });
});

afterEach(() => server.stop());

/** Sends bytes, and returns the answer of the server until it ends the connection. */
function answerTo(bytes: string): Promise<string> {
  const [host, port] = server.address.split(":");
  return new Promise((resolve) => {
    let text = "";
    const socket = connect(Number(port), host, () => socket.write(bytes, "latin1"));
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("error", () => undefined);
    socket.on("close", () => resolve(text));
  });
}

const head = "POST /kpng.view.v1.NodeViewService/GetNodeView HTTP/1";
const body = "Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

test.each([
  { name: "has no host", bytes: `${head}.0\r\n${body}`, status: 400 },
  { name: "has an invalid host", bytes: `${head}.1\r\nHost: [[[\r\n${body}`, status: 403 },
  { name: "has an invalid target", bytes: `POST http://[ HTTP/1.1\r\nHost: localhost\r\n${body}`, status: 404 },
  { name: "is TLS", bytes: "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", status: 400 },
  { name: "is valid", bytes: `${head}.1\r\nHost: localhost\r\n${body}`, status: 200 },
])("a request that $name gets an answer, and the server continues", async ({ bytes, status }) => {
  expect(await answerTo(bytes)).toContain(`HTTP/1.1 ${status} `);
  expect(await answerTo(`${head}.1\r\nHost: localhost\r\n${body}`)).toContain("HTTP/1.1 200 ");
});

test("a request of more than 16 KiB that the Connect library would decode is refused", async () => {
  const json = `{"nodeName":"${"n".repeat(100)}"${" ".repeat(16 * 1024)}}`;
  const head11 = `${head}.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n`;
  const answer = await answerTo(`${head11}Content-Length: ${json.length}\r\n\r\n${json}`);
  expect(answer).toContain("resource_exhausted");
});

test("a connection without answers to pings is closed, one with answers is kept", async () => {
  // The preface and an empty SETTINGS frame, then silence.
  expect(await answerTo("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")).not.toBe("");
  const session = connectHttp2(`http://${server.address}`);
  const pinged = new Promise<void>((resolve) => {
    let count = 0;
    session.on("ping", () => {
      if (++count === 5) resolve();
    });
  });
  await pinged;
  expect(session.destroyed).toBe(false);
  session.destroy();
});

test("a deadline beyond the longest timer is no deadline: it does not end the call, and nothing is logged", async () => {
  const warnings: string[] = [];
  const onWarning = ({ name }: Error): unknown => warnings.push(name);
  process.on("warning", onWarning);
  for (const header of ["Connect-Timeout-Ms: 3000000000", "Grpc-Timeout: 99999999H"]) {
    const answer = await answerTo(`${head}.1\r\nHost: localhost\r\n${header}\r\n${body}`);
    expect(answer).toContain("HTTP/1.1 200 ");
  }
  await new Promise(setImmediate);
  process.removeListener("warning", onWarning);
  expect(warnings).toEqual([]);
});
