import { get as httpGet, type IncomingHttpHeaders } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { makeCertificates, type TestCertificates } from "@kpng/process/testing/certificates.ts";
import { readClientTls, readServerTls } from "@kpng/process/tls-files.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { statusPage } from "@kpng/watcher/page/status-page.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { node, service } from "@kpng/watcher/testing/build.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { Registry } from "prom-client";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { checkPage, serveDashboard } from "./serve-dashboard.ts";
import { WatcherSession } from "./watcher-session.ts";

let files: TestCertificates;
beforeAll(() => {
  files = makeCertificates();
});
afterAll(() => files.remove());

let server: TestServer;
let stop: AbortController;
const ends: (() => Promise<void> | void)[] = [];

beforeEach(async () => {
  stop = new AbortController();
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
  const subscribers = new Subscribers(new Registry());
  const api = inspection({ store, subscribers, proxyNames: proxyNamesOf([]) });
  server = await serveStore(store, {
    subscribers,
    moreServices: [api],
    page: statusPage(api.context),
    trustsLoopback: false,
    drainMs: 0,
    tls: readServerTls("", { ...files.server, ca: files.ca }),
  });
});
afterEach(async () => {
  stop.abort();
  for (const end of ends.splice(0)) await end();
  await server.stop();
});

function session(uris: readonly string[]): WatcherSession {
  const tls = readClientTls({ ...files.clientWith([...uris]), ca: files.ca });
  const watcher = new WatcherSession({ api: `https://${server.address}`, tls });
  ends.push(() => watcher.close());
  return watcher;
}

/** Starts a dashboard whose user may inspect. Returns its address. */
async function start(): Promise<URL> {
  const listening = Promise.withResolvers<string>();
  const watcher = session(["kpng://inspection"]);
  const running = serveDashboard({ watcher, port: 0, onListening: listening.resolve }, stop.signal);
  ends.push(() => running);
  return new URL(await listening.promise);
}

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

function get(url: URL, headers: Record<string, string> = {}, method = "GET"): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = httpGet(url, { headers, method, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      const done = () => resolve({ status: response.statusCode, headers: response.headers, text });
      response.on("data", (chunk: string) => {
        text += chunk;
        // The event stream never ends.
        if (text.startsWith("data: ")) {
          done();
          response.destroy();
        }
      });
      response.on("end", done);
    });
    request.on("error", reject);
  });
}

const query = "kpng.inspect.v1.InspectService/ListServices?connect=v1&encoding=json&message=%7B%7D";

test("it passes page, events and queries on with the caller's certificate, and the headers of the page back", async () => {
  const url = await start();
  const page = await get(url);
  expect([page.status, page.text]).toEqual([200, expect.stringContaining("<!doctype html>")]);
  expect(page.headers["content-security-policy"]).toContain("default-src 'none'");
  const tag = String(page.headers.etag);
  expect((await get(url, { "if-none-match": tag })).status).toBe(304);
  expect((await get(new URL("live", url))).text).toMatch(/^data: \{"isWhole":true/);
  expect(JSON.parse((await get(new URL(query, url))).text)).toMatchObject({ services: [{ name: "web" }] });
});

test("clients without its word, and pages of other sites, get nothing", async () => {
  const url = await start();
  for (const path of ["/", "/live", `/wrong/${query}`, "/x/page.js"]) {
    expect((await get(new URL(path, url))).status, path).toBe(404);
  }
  expect((await get(url, { host: "evil.example" })).status).toBe(403);
  expect((await get(url, { origin: "https://evil.example" })).status).toBe(403);
  const image = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" };
  expect((await get(new URL(query, url), image)).status).toBe(403);
});

test.each([
  "kpng.inspect.v1.InspectService/ReleaseDeletions?connect=v1&encoding=json&message=%7B%7D",
  "localv1.Sets/Watch",
  "kpng.view.v1.NodeViewService/GetNodeView?connect=v1&encoding=json&message=%7B%7D",
  "x/../kpng.inspect.v1.InspectService/ReleaseDeletions?",
])("it does not pass on %s", async (path) => {
  const url = await start();
  const whole = Object.assign(new URL(url), {});
  expect((await get(new URL(`${whole.href}${path}`))).status).toBe(404);
});

test("it only reads", async () => {
  const url = await start();
  expect((await get(new URL(query, url), {}, "POST")).status).toBe(405);
});

test("a caller without the right of inspection learns it before the browser does", async () => {
  await expect(checkPage(session(["kpng://node/n1"]), "watcher", stop.signal)).rejects.toThrow(
    "may not inspect the whole cluster",
  );
  await expect(checkPage(session(["kpng://inspection"]), "watcher", stop.signal)).resolves.toBeUndefined();
});

test("a watcher that does not answer is a plain error with a hint, later a status 502", async () => {
  const url = await start();
  expect((await get(url)).status).toBe(200);
  await server.stop();
  await expect(checkPage(session(["kpng://inspection"]), "watcher", stop.signal)).rejects.toThrow(
    "Hint: nothing listens there",
  );
  const answer = await get(url);
  expect([answer.status, answer.text]).toEqual([502, expect.stringContaining("the watcher does not answer")]);
});

/** Returns a session to a server that accepts connections and never answers. */
async function dialSilent(silenceMs?: number): Promise<WatcherSession> {
  const silent = createServer(() => undefined);
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const { port } = silent.address() as AddressInfo;
  const watcher = new WatcherSession({ api: `127.0.0.1:${port}` }, silenceMs);
  ends.push(
    () => watcher.close(),
    () => void silent.close(),
  );
  return watcher;
}

test("a watcher that accepts the connection and never answers is an error that says so", async () => {
  const watcher = await dialSilent(300);
  await expect(checkPage(watcher, "watcher", stop.signal)).rejects.toThrow("watcher: no data for 0.3 s");
});

test("a signal ends the wait for a watcher that does not answer", async () => {
  const asked = checkPage(await dialSilent(), "watcher", stop.signal);
  stop.abort();
  // Sooner than the 30 s of silence after which it would be an error.
  await expect(asked).resolves.toBeUndefined();
});
