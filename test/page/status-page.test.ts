import { createServer, request as httpRequest } from "node:http";
import type { Endpoint } from "@kpng/model/endpoint.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ServiceType } from "@kpng/model/service.ts";
import { draining, endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import { listen } from "../cluster/ports.ts";
import { GrpcJsWatch } from "../peer/grpc-js-client.ts";
import { lowContrast, withoutNames } from "./accessibility.ts";
import { Chromium, whyNoChromium } from "./chromium.ts";
import { type PageServer, servePage } from "./page-server.ts";

const hostile = `"><img src=x onerror=alert(1)><script>alert(2)</script>'&`;
const wait = { timeout: 30_000 };

describeWhere("the status page in a browser", whyNoChromium, () => {
  vi.setConfig({ testTimeout: 120_000 });
  let browser: Chromium;
  let store: Store;
  let server: PageServer;
  const nodes: GrpcJsWatch[] = [];

  beforeAll(async () => {
    browser = await Chromium.start();
  }, 60_000);
  afterAll(() => browser?.stop());

  beforeEach(async () => {
    browser.errors.length = 0;
    store = new Store();
    server = await servePage(store);
  });
  afterEach(async () => {
    await browser.send("Page.navigate", { url: "about:blank" });
    for (const each of nodes.splice(0)) each.close();
    await server.stop();
  });

  const pod = (number: number, fields: Partial<Endpoint> = {}) =>
    endpoint(`10.1.0.${number}`, { podName: `web-${number}`, nodeName: `n${number}`, ...fields });

  function list(): void {
    store.replace({
      services: [service(), service({ name: "dns", clusterIP: "10.96.0.2" })],
      slices: [slice([pod(1), pod(2)])],
      nodes: [node("n1", { zone: "za" }), node("n2", { zone: "zb" }), node("n3")],
    });
  }

  async function join(name: string): Promise<GrpcJsWatch> {
    const watch = new GrpcJsWatch(server.address, "local");
    nodes.push(watch);
    await watch.ask({ NodeName: name, Features: [Feature.Extended], Subscriber: { Name: "kpng-test", Version: "1" } });
    watch.send({ NodeName: name, Features: [Feature.Extended] });
    watch.acknowledge(store.snapshot.revision);
    return watch;
  }

  function drain(): void {
    const change = { kind: "put-slice", slice: slice([pod(1), pod(2, { conditions: draining })]) } as const;
    store.apply([change], { source: "kube", receivedAtMs: Date.now() });
  }

  const open = (path = "#/problems") => browser.open(`http://${server.page}/${path}`);
  const shows = (selector: string, text: string | RegExp) => {
    const expected = expect.poll(() => browser.text(selector), wait);
    return typeof text === "string" ? expected.toContain(text) : expected.toMatch(text);
  };

  const goTo = (section: string) => browser.evaluate(`location.hash = "#/${section}"`);

  test("every section follows the watcher, without being loaded again", async () => {
    list();
    await open();
    await shows("#facts", /Errors\s+0\s+Warnings\s+5\s[\s\S]*Services\s+2/);
    await shows(
      "#rows",
      /node n1\s+warning: no backend of this node.*\s+node n2[\s\S]*service ns\/dns\s+warning: it has no endpoints/,
    );
    const watch = await join("n1");
    await expect.poll(() => browser.text("#rows"), wait).not.toContain("node n1");
    await goTo("nodes");
    await shows("#rows", /n1\s+current\s+–\s+1\s+za\s+kpng-test/);
    await goTo("services/ns/web");
    await shows("#facts", "http:80/TCP");
    await shows("#rows", /10\.1\.0\.2\s+web-2\s+n2\s+–\s+ready/);
    drain();
    await shows("#rows", /10\.1\.0\.2\s+web-2\s+n2\s+–\s+terminating, serving/);
    await goTo("services");
    await shows("#rows", /ns\/web\s+ClusterIP\s+10\.96\.0\.1\s+http:80\/TCP\s+1\s+1\s+0/);
    await goTo("changes");
    await shows("#rows", /endpoints ns\/web\s+0 of 1/);
    await watch.batch();
    watch.acknowledge(store.snapshot.revision);
    await shows("#rows", /endpoints ns\/web\s+1 of 1\s+\d.*\d.*n1/);
    expect(browser.errors).toEqual([]);
  });

  test("a filter chooses the rows that are shown, and the page says how many", async () => {
    const names = Array.from({ length: 1_200 }, (_, index) => `n${index + 1}`);
    store.replace({ services: [], slices: [], nodes: names.map((name) => node(name)) });
    await open("#/nodes");
    await shows("#count", "1200 rows; the first 200 are shown");
    await browser.evaluate(
      `{ const e = document.querySelector("#filter"); e.value = "N44"; e.dispatchEvent(new Event("input")); }`,
    );
    await shows("#count", "11 of 1200 rows");
    expect(browser.errors).toEqual([]);
  });

  test("no text of the cluster becomes an element or runs as a script", async () => {
    const web = service({ namespace: hostile, name: hostile, ports: [] });
    store.replace({
      services: [web, service()],
      slices: [slice([endpoint("10.1.0.1", { podName: hostile, nodeName: hostile, zone: hostile })])],
      nodes: [node("n1", { zone: hostile }), node(hostile)],
    });
    const watch = await join("n1");
    store.apply([{ kind: "put-service", service: { ...web, type: hostile as ServiceType } }]);
    await watch.batch();
    watch.send({ Ack: { Failed: BigInt(store.snapshot.revision), Error: hostile } });
    const itself = encodeURIComponent(hostile);
    for (const section of ["problems", "services", "services/ns/web", "nodes", "changes"]) {
      await open(`#/${section}`);
      await shows("#rows", hostile);
    }
    await open(`#/services/${itself}/${itself}`);
    await shows("#title", hostile);
    expect(await browser.evaluate(`document.querySelectorAll("img, main script, [onerror]").length`)).toBe(0);
    expect(browser.errors).toEqual([]);
  });

  test("every section shows that the source is broken, because its last rows look current", async () => {
    list();
    await open("#/services");
    await shows("#connection", /^Live$/);
    const reason = "the state may be out of date";
    server.health.set("source/current", { isHealthy: false, isReady: true, reason });
    await shows("#connection", "Live, but this watcher has problems");
    await goTo("problems");
    await shows("#rows", reason);
    server.health.setReady("source/current");
    await shows("#connection", /^Live$/);
    expect(browser.errors).toEqual([]);
  });

  test("it works behind a path prefix, and shows that the watcher is gone and back", async () => {
    list();
    const port = await serveBehindPrefix("/kube/kpng", server.page);
    await browser.open(`http://127.0.0.1:${port}/kube/kpng/#/services/ns/web`);
    await shows("#rows", "web-2");
    await shows("#connection", "Live");
    expect(browser.errors).toEqual([]);
    const { page } = server;
    await server.stop();
    await shows("#connection", "Not connected");
    server = await servePage(store, { page });
    await shows("#connection", "Live");
    drain();
    await shows("#rows", "terminating");
  });

  test("a page that is opened in a hidden tab sends no request until it is shown", async () => {
    list();
    const source = `
      let state = "hidden";
      Object.defineProperty(document, "visibilityState", { get: () => state });
      window.calls = 0;
      const { fetch } = window;
      window.fetch = (...call) => { window.calls += 1; return fetch(...call); };
      window.showTab = () => { state = "visible"; document.dispatchEvent(new Event("visibilitychange")); };`;
    const method = "Page.addScriptToEvaluateOnNewDocument";
    const script = await browser.send<{ identifier: string }>(method, { source });
    try {
      await open("#/nodes");
      await shows("#title", "Nodes");
      expect(await browser.evaluate("window.calls")).toBe(0);
      await browser.evaluate("window.showTab()");
      await shows("#connection", "Live");
    } finally {
      await browser.send("Page.removeScriptToEvaluateOnNewDocument", script);
    }
  });

  test("every section can be reached and used with the keyboard", async () => {
    list();
    await open();
    await shows("#connection", "Live");
    const focused = () =>
      browser.evaluate<string>(`document.activeElement?.innerText || document.activeElement?.id || ""`);
    const tabTo = async (text: string): Promise<void> => {
      for (let presses = 0; presses < 30; presses += 1) {
        await browser.press("Tab");
        if ((await focused()) === text) return;
      }
      expect.fail(`Tab does not reach "${text}"`);
    };
    await browser.press("Tab");
    expect(await focused()).toBe("Skip to content");
    await tabTo("Services");
    await browser.press("Enter");
    await expect.poll(focused, wait).toBe("Services");
    await shows("#rows", "ns/web");
    await tabTo("filter");
    await browser.type("web");
    await shows("#count", "1 of 2 rows");
    await tabTo("ns/web");
    await browser.press("Enter");
    await expect.poll(focused, wait).toBe("ns/web");
    await shows("#rows", "web-2");
  });

  test("text has contrast in both colour schemes, the structure has names, and only tables scroll sideways", async () => {
    list();
    const watch = await join("n1");
    drain();
    await watch.batch();
    watch.send({ Ack: { Failed: BigInt(store.snapshot.revision), Error: "nft refused line 7" } });
    const screen = { width: 320, height: 600, deviceScaleFactor: 1, mobile: false };
    await browser.send("Emulation.setDeviceMetricsOverride", screen);
    const content = {
      problems: "nft refused",
      services: "ns/web",
      "services/ns/web": "web-2",
      nodes: "n1",
      changes: "n1",
    };
    for (const scheme of ["light", "dark"] as const) {
      await browser.setColorScheme(scheme);
      for (const [section, text] of Object.entries(content)) {
        await open(`#/${section}`);
        await shows("#rows", text);
        await shows("#connection", "Live");
        expect(await browser.evaluate(lowContrast), `${section}, ${scheme}`).toEqual([]);
        expect(await browser.evaluate(withoutNames), section).toEqual([]);
        expect(await browser.evaluate("document.documentElement.scrollWidth"), section).toBe(320);
      }
    }
    await browser.send("Emulation.clearDeviceMetricsOverride");
    expect(browser.errors).toEqual([]);
  });
});

/** Starts a reverse proxy that removes a path prefix, until the end of the test. Returns its port. */
async function serveBehindPrefix(prefix: string, target: string): Promise<number> {
  const proxy = createServer((request, response) => {
    const { method, headers, url = "" } = request;
    if (!url.startsWith(`${prefix}/`)) return void response.writeHead(404).end();
    const options = { method, headers: { ...headers, host: target } };
    const forwarded = httpRequest(`http://${target}${url.slice(prefix.length)}`, options, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    forwarded.on("error", () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
    response.on("close", () => forwarded.destroy());
    request.pipe(forwarded);
  });
  onTestFinished(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  return listen(proxy);
}
