import { get as httpGet } from "node:http";
import { Health } from "@kpng/process/health/health.ts";
import { statusServerTask } from "@kpng/process/health/status-server.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { freePorts } from "../../../../test/cluster/ports.ts";
import type { Trust } from "../identity/client-rights.ts";
import { TokenChecker } from "../identity/token-checker.ts";
import { inspection } from "../inspect/inspection.ts";
import { Store } from "../store/store.ts";
import { proxyNamesOf } from "../stream/session/requests.ts";
import { Subscribers } from "../stream/session/subscribers.ts";
import { node, service } from "../testing/build.ts";
import { TokenIssuer } from "../testing/token-issuer.ts";
import { maxPages } from "./live/live-feed.ts";
import { statusPage } from "./status-page.ts";

let store: Store;
let address: string;
let running: Promise<void>;
let stop: AbortController;
const pages: AbortController[] = [];

beforeEach(() => {
  store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
});
afterEach(async () => {
  for (const page of pages.splice(0)) page.abort();
  stop.abort();
  await running;
});

async function serve(trust: Trust = {}, tokens?: TokenChecker): Promise<void> {
  const log = createLog("error", () => undefined);
  const api = inspection({ store, subscribers: new Subscribers(new Registry()), proxyNames: proxyNamesOf([]) });
  const [port = 0] = await freePorts(1);
  address = `127.0.0.1:${port}`;
  stop = new AbortController();
  const pages = statusPage({ api, trust, tokens, log });
  running = statusServerTask({ address, health: new Health(), metrics: new Registry(), pages }).run(stop.signal);
  await expect
    .poll(() =>
      fetch(`http://${address}/livez`).then(
        ({ status }) => status,
        () => 0,
      ),
    )
    .toBe(200);
}

const get = (path: string, headers: Record<string, string> = {}, method = "GET") =>
  fetch(`http://${address}${path}`, { headers, method });

/** Like {@link get}, with headers that `fetch` sets itself. */
function statusWith(path: string, headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    httpGet(`http://${address}${path}`, { headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on("error", reject);
  });
}

/** Opens the event stream; it stays open until the end of the test. */
async function openLive(): Promise<{ readonly status: number; readonly first: string }> {
  const page = new AbortController();
  pages.push(page);
  const response = await fetch(`http://${address}/live`, { signal: page.signal });
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

test.each(["/", "/page.js", "/live", "/kpng.inspect.v1.InspectService/GetStatus"])(
  "%s needs the right of inspection, and the refusal names the remedy",
  async (path) => {
    await serve({ trustsLoopback: false });
    const response = await get(path);
    expect(response.status).toBe(401);
    expect(await response.text()).toContain("port-forward");
  },
);

test("without trust in loopback, a token with the right is accepted as password", async () => {
  const issuer = new TokenIssuer();
  const log = createLog("error", () => undefined);
  const none = new Set<string>();
  const accounts = { node: new Set(["kube-system/kpng-node"]), state: none, inspection: new Set(["ops/ann"]) };
  await serve({ trustsLoopback: false }, new TokenChecker({ review: issuer.review, audience: "kpng", accounts, log }));
  const as = (password: string) =>
    get("/", { authorization: `Basic ${Buffer.from(`any:${password}`).toString("base64")}` });
  const asked = await get("/");
  expect([asked.status, asked.headers.get("www-authenticate")]).toEqual([401, 'Basic realm="kpng"']);
  expect((await as("wrong")).status).toBe(401);
  expect((await as(issuer.issue())).status).toBe(403);
  expect((await as(issuer.issue({ account: "ops:ann" }))).status).toBe(200);
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
  expect(await statusWith("/", { host: "evil.example" })).toBe(403);
  expect((await get("/", { origin: "https://evil.example" })).status).toBe(403);
});

test("pages of other sites cannot send queries", async () => {
  await serve();
  const path = "/kpng.inspect.v1.InspectService/ListServices?connect=v1&encoding=json&message=%7B%7D";
  const image = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image" };
  expect(await (await get(path)).json()).toMatchObject({ services: [{ name: "web" }] });
  expect(await statusWith(path, { "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors" })).toBe(200);
  expect(await statusWith(path, image)).toBe(403);
  expect(await statusWith(path, { host: "evil.example" })).toBe(403);
});

test("the number of open pages is limited; a closed one makes room for another", async () => {
  await serve();
  for (let count = 0; count < maxPages; count += 1) expect((await openLive()).status).toBe(200);
  const refused = await openLive();
  expect(refused).toMatchObject({ status: 503, first: expect.stringContaining("close another one") });
  pages[0]?.abort();
  await expect.poll(async () => (await openLive()).status, { timeout: 30_000 }).toBe(200);
});

test("HEAD requests for the event stream are answered at once, and take no place of a page", async () => {
  await serve();
  for (let count = 0; count < maxPages; count += 1) expect((await get("/live", {}, "HEAD")).status).toBe(200);
  expect((await openLive()).status).toBe(200);
});
