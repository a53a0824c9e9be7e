import { once } from "node:events";
import { get as httpGet } from "node:http";
import { connect } from "node:http2";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { inspection } from "../inspect/inspection.ts";
import type { ServeOptions } from "../stream/serve/serve-options.ts";
import { proxyNamesOf } from "../stream/session/requests.ts";
import { Subscribers } from "../stream/session/subscribers.ts";
import { WatchedServer } from "../testing/watched-server.ts";
import { maxPages } from "./live/live-feed.ts";
import { statusPage } from "./status-page.ts";

let watched: WatchedServer;
const pages: AbortController[] = [];

beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(async () => {
  for (const page of pages.splice(0)) page.abort();
  await watched.stop();
});

async function serve(options: Partial<ServeOptions> = {}): Promise<void> {
  const subscribers = new Subscribers(new Registry());
  const api = inspection({ store: watched.store, subscribers, proxyNames: proxyNamesOf([]) });
  const page = statusPage(api.context);
  await watched.serve({ subscribers, moreServices: [api], page, drainMs: 0, ...options });
}

const get = (path: string, headers: Record<string, string> = {}, method = "GET") =>
  fetch(`http://${watched.address}${path}`, { headers, method });

/** Like {@link get}, with headers that `fetch` sets itself. */
function statusWith(path: string, headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    httpGet(`http://${watched.address}${path}`, { headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on("error", reject);
  });
}

/** Opens the event stream; it stays open until the end of the test. */
async function openLive(): Promise<{ readonly status: number; readonly first: string }> {
  const page = new AbortController();
  pages.push(page);
  const response = await fetch(`http://${watched.address}/live`, { signal: page.signal });
  const { value } = (await response.body?.getReader().read()) ?? {};
  return { status: response.status, first: new TextDecoder().decode(value) };
}

test("the page forbids scripts, styles, frames and requests of every other origin, and anything inline", async () => {
  await serve();
  const response = await get("/");
  const html = await response.text();
  const policy = response.headers.get("content-security-policy") ?? "";
  expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
  expect(policy).toContain("frame-ancestors 'none'; require-trusted-types-for 'script'");
  expect(policy).not.toContain("unsafe");
  expect(html).not.toMatch(/<script(?! type="module" src="page.js"><\/script>)|<style|\son\w+=|\sstyle=/);
  // Relative addresses only, for a path prefix.
  expect([...html.matchAll(/(?:src|href)="([^"]*)"/g)].filter(([, url]) => !/^(#|[a-z.]+$)/.test(url ?? ""))).toEqual(
    [],
  );
});

test("files are answered by 304 if the browser has them, and only GET and HEAD are answered", async () => {
  await serve();
  for (const path of ["/", "/page.js", "/page.css", "/icon.svg"]) {
    const response = await get(path);
    expect(response.status, path).toBe(200);
    expect((await get(path, { "if-none-match": response.headers.get("etag") ?? "" })).status).toBe(304);
    const weakTag = `W/${response.headers.get("etag")}`;
    expect((await get(path, { "if-none-match": `"other", ${weakTag}` })).status).toBe(304);
    expect(await (await get(path, {}, "HEAD")).text()).toBe("");
    const refused = await get(path, {}, "POST");
    expect([refused.status, refused.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  }
  expect((await get("/other")).status).toBe(404);
});

test.each(["/", "/page.js", "/live"])(
  "%s needs the right of inspection, and the refusal names the remedy",
  async (path) => {
    await serve({ trustsLoopback: false });
    const response = await get(path);
    expect(response.status).toBe(401);
    expect(await response.text()).toContain("kubectl port-forward");
  },
);

test("without the inspect API, there is no page", async () => {
  await watched.serve({ drainMs: 0 });
  expect((await get("/")).status).toBe(404);
});

test("pages of other sites cannot open the event stream, and names of other hosts are refused", async () => {
  await serve();
  for (const site of ["cross-site", "same-site"]) {
    expect(await statusWith("/live", { "sec-fetch-site": site, "sec-fetch-mode": "no-cors" })).toBe(403);
    // As a frame or a download.
    expect(await statusWith("/live", { "sec-fetch-site": site, "sec-fetch-mode": "navigate" })).toBe(403);
    // A link on another page may lead here.
    expect(await statusWith("/", { "sec-fetch-site": site, "sec-fetch-mode": "navigate" })).toBe(200);
  }
  expect(await watched.metric("kpng_refused_total", { reason: "web-page" })).toBe(4);
  expect(await statusWith("/", { host: "evil.example" })).toBe(403);
  expect((await get("/", { origin: "https://evil.example" })).status).toBe(403);
  expect(await watched.metric("kpng_refused_total", { reason: "web-page" })).toBe(6);
});

test("pages of other sites cannot send queries, over either version of HTTP, and links to queries work", async () => {
  await serve();
  const path = `/kpng.inspect.v1.InspectService/ListServices?connect=v1&encoding=json&message=%7B%7D`;
  const image = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image" };
  expect(await statusWith(path, { "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors" })).toBe(200);
  expect(await statusWith(path, { ...image, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" })).toBe(200);
  expect(await statusWith(path, image)).toBe(403);
  const session = connect(`http://${watched.address}`);
  const stream = session.request({ ":path": path, ...image });
  const [headers] = await once(stream, "response");
  stream.resume();
  session.destroy();
  expect(headers[":status"]).toBe(403);
  expect(await watched.metric("kpng_refused_total", { reason: "web-page" })).toBe(2);
});

test("the number of open pages is limited; a closed one makes room for another", async () => {
  await serve();
  for (let count = 0; count < maxPages; count += 1) expect((await openLive()).status).toBe(200);
  const refused = await openLive();
  expect(refused).toMatchObject({ status: 503, first: expect.stringContaining("close another one") });
  expect(await watched.metric("kpng_refused_total", { reason: "pages" })).toBe(1);
  pages[0]?.abort();
  await expect.poll(async () => (await openLive()).status, { timeout: 30_000 }).toBe(200);
});

test("HEAD requests for the event stream are answered at once, and take no place of a page", async () => {
  await serve();
  const session = connect(`http://${watched.address}`);
  for (let count = 0; count < maxPages; count += 1) {
    expect((await get("/live", {}, "HEAD")).status).toBe(200);
    const stream = session.request({ ":path": "/live", ":method": "HEAD" });
    stream.resume();
    await once(stream, "close");
  }
  session.destroy();
  expect((await openLive()).status).toBe(200);
});

test("the connection of an open page is not idle over HTTP/2", async () => {
  await serve({ idleMs: 500 });
  const session = connect(`http://${watched.address}`);
  const stream = session.request({ ":path": "/live" });
  let frames = 0;
  for await (const _ of stream) {
    frames += 1;
    if (frames === 3) break;
  }
  session.destroy();
  expect(frames).toBe(3);
});

test("the event stream ends when the client is asked to reconnect, so that it finds another replica", async () => {
  await serve({ drainMs: 10_000 });
  const response = await fetch(`http://${watched.address}/live`);
  const ended = response.text();
  await watched.stop();
  expect(await ended).toMatch(/^data: /);
  await serve();
});

test("page and event stream are served over HTTP/2, too", async () => {
  await serve();
  const session = connect(`http://${watched.address}`);
  for (const path of ["/", "/live"]) {
    const stream = session.request({ ":path": path });
    const chunk = await new Promise<Buffer>((resolve) => stream.once("data", resolve));
    expect(chunk.toString()).toMatch(/^(<!doctype html>|data: \{"isWhole":true)/);
    stream.close();
  }
  session.destroy();
});
