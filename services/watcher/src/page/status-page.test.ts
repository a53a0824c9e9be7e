import { request as httpRequest } from "node:http";
import { text } from "node:stream/consumers";
import { createLog } from "@kpng/process/log.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { afterEach, expect, test } from "vitest";
import { type PageServer, servePage } from "../../../../test/page/page-server.ts";
import type { Trust } from "../identity/rights.ts";
import { TokenChecker } from "../identity/token-checker.ts";
import { Store } from "../store/store.ts";
import { accounts, TokenIssuer } from "../testing/token-issuer.ts";
import { webPageReason } from "./status-page.ts";

let address: string;
let server: PageServer;
afterEach(() => server?.stop());

async function serve(trust: Trust = {}, tokens?: TokenChecker): Promise<void> {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
  server = await servePage(store, { trust, tokens });
  address = server.page;
}

const get = (path: string, headers: Record<string, string> = {}, method = "GET") =>
  fetch(`http://${address}${path}`, { headers, method });

const method = "/kpng.inspect.v1.InspectService/ListServices";

/** Calls a method with headers that `fetch` sets itself. */
function call(headers: Record<string, string>, verb = "POST"): Promise<readonly [number | undefined, string]> {
  return new Promise((resolve, reject) => {
    const options = { method: verb, headers: { "content-type": "application/json", ...headers }, agent: false };
    const request = httpRequest(`http://${address}${method}`, options, (response) => {
      text(response).then((answer) => resolve([response.statusCode, answer]), reject);
    });
    request.on("error", reject);
    request.end(verb === "POST" ? "{}" : undefined);
  });
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

test("files are sent anew each time, and only GET and HEAD are answered", async () => {
  await serve();
  for (const path of ["/", "/page.js", "/page.css", "/icon.svg"]) {
    const response = await get(path);
    expect(response.status, path).toBe(200);
    expect(response.headers.get("cache-control")).toBe("no-store");
    expect(await (await get(path, {}, "HEAD")).text()).toBe("");
    const refused = await get(path, {}, "POST");
    expect([refused.status, refused.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  }
  expect((await get("/other")).status).toBe(404);
});

test("without the right of inspection, files and queries are refused with the remedy", async () => {
  await serve({ trustsLoopback: false });
  for (const path of ["/", "/page.js"]) {
    const response = await get(path);
    expect([response.status, await response.text()]).toEqual([401, expect.stringContaining("port-forward")]);
  }
  expect(await call({})).toEqual([401, expect.stringContaining("port-forward")]);
});

test("without trust in loopback, a token with the right is accepted as password", async () => {
  const issuer = new TokenIssuer();
  const log = createLog("error", () => undefined);
  await serve({ trustsLoopback: false }, new TokenChecker({ review: issuer.review, audience: "kpng", accounts, log }));
  const as = (password: string) =>
    get("/", { authorization: `Basic ${Buffer.from(`any:${password}`).toString("base64")}` });
  const asked = await get("/");
  expect([asked.status, asked.headers.get("www-authenticate")]).toEqual([401, 'Basic realm="kpng"']);
  expect((await as("wrong")).status).toBe(401);
  expect((await as(issuer.issue())).status).toBe(403);
  expect((await as(issuer.issue({ account: "ops:alice" }))).status).toBe(200);
});

test.each([
  { host: "127.0.0.1:12091", isLocal: true },
  { host: "[::1]:12091", isLocal: true },
  { host: "localhost:12091", isLocal: true },
  { host: "127.0.0.1:12091", origin: "http://127.0.0.1:12091", isLocal: true },
  // HTTP/1.0 has no host, and no browser sends it.
  { host: undefined, isLocal: true },
  { host: "evil.example:12091", isLocal: false },
  { host: "localhost.evil.example", isLocal: false },
  { host: "127.0.0.1.evil.example", isLocal: false },
  { host: "127.0.0.1:12091", origin: "https://evil.example", isLocal: false },
  { host: "127.0.0.1:12091", origin: "null", isLocal: false },
  { host: "watcher:12091", isLocal: false },
  { host: "watcher.kube-system.svc:12091", isRemote: true, isLocal: true },
  { host: "watcher:12091", isRemote: true, isLocal: true },
  { host: "10.0.0.7:12091", isRemote: true, isLocal: true },
  { host: "watcher.svc.evil.example:12091", isRemote: true, isLocal: false },
])(
  "a request to $host from $origin, from another machine: $isRemote, is answered: $isLocal",
  ({ host, origin, isRemote, isLocal }) => {
    expect(webPageReason(host, origin, { isRemote }) === undefined).toBe(isLocal);
  },
);

test("only its own page can send queries", async () => {
  await serve();
  expect(await call({ origin: `http://${address}` })).toEqual([200, expect.stringContaining('"name":"web"')]);
  const proxied = { origin: "https://proxy.example", "sec-fetch-site": "same-origin" };
  expect((await call(proxied))[0]).toBe(200);
  expect((await call({ ...proxied, host: "evil.example" }))[0]).toBe(403);
  expect((await call({ ...proxied, "sec-fetch-site": "cross-site" }))[0]).toBe(403);
  expect((await call({ origin: "https://evil.example" }))[0]).toBe(403);
  // What a page of another site can send without a question by the browser: an image, and a form.
  expect((await call({}, "GET"))[0]).toBe(405);
  expect((await call({}, "OPTIONS"))[0]).toBe(405);
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    expect((await call({ "content-type": type }))[0], type).toBe(415);
  }
  expect((await get("/", { origin: "https://evil.example" })).status).toBe(403);
});
