import { createServer, request as httpRequest, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ServiceType } from "@kpng/model/service.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { addresses, draining, endpoint, node, service, slice } from "@kpng/watcher/testing/build.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "../peer/grpc-js-client.ts";
import { isEverything } from "../scenario/selection.ts";
import { lowContrast, withoutNames } from "./accessibility.ts";
import { Chromium, whyNoChromium } from "./chromium.ts";
import { type PageServer, servePage } from "./page-server.ts";

const hostile = `"><img src=x onerror=alert(1)><script>alert(2)</script>'&`;
const wait = { timeout: 30_000 };

const skip = whyNoChromium !== undefined && process.env.CI !== "true";
const name = `the status page in a browser${skip ? ` (skipped: ${whyNoChromium})` : ""}`;

describe.skipIf(skip)(name, { timeout: 120_000 }, () => {
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

  function list(): void {
    const web = [
      endpoint("10.1.0.1", { podName: "web-1" }),
      endpoint("10.1.0.2", { podName: "web-2", nodeName: "n2" }),
    ];
    store.replace({
      services: [service({ name: "web" }), service({ name: "dns", clusterIPs: addresses("10.96.0.2") })],
      slices: [slice(web)],
      nodes: [node("n1", { zone: "za" }), node("n2", { zone: "zb" }), node("n3")],
    });
  }

  async function join(name: string): Promise<GrpcJsWatch> {
    const watch = new GrpcJsWatch(server.address, "local");
    nodes.push(watch);
    await watch.ask({ NodeName: name, Features: [Feature.Extended], Subscriber: { Name: "kpng-test", Version: "1" } });
    watch.send({ NodeName: name, Features: [Feature.Extended] });
    applied(watch);
    return watch;
  }

  function applied(watch: GrpcJsWatch): void {
    const Timings = { WaitMicros: 1_000n, RenderMicros: 2_000n, CommitMicros: 3_000n };
    watch.send({ Ack: { Applied: BigInt(store.snapshot.revision), Timings } });
  }

  function drain(): void {
    const terminating = endpoint("10.1.0.2", { podName: "web-2", nodeName: "n2", conditions: draining });
    store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.1", { podName: "web-1" }), terminating]) }], {
      source: "kube",
      receivedAtMs: Date.now(),
    });
  }

  const open = (path = "#/overview") => browser.open(`http://${server.page}/${path}`);
  const shows = (selector: string, text: string | RegExp) => {
    const expected = expect.poll(() => browser.text(selector), wait);
    return typeof text === "string" ? expected.toContain(text) : expected.toMatch(text);
  };

  test("it shows the counts of the watcher, and nodes that join, without being loaded again", async () => {
    list();
    await open();
    await shows("#connection", "Live");
    await shows("#facts", /Services\s+2/);
    await shows("#warnings", "3 nodes without a connected proxy");
    await join("n1");
    await shows("#warnings", "2 nodes without a connected proxy");
    await browser.evaluate(`location.hash = "#/nodes"`);
    await shows("#nodes-rows", /n1\s+current\s+–\s+newest\s+za\s+kpng-test/);
    expect(browser.errors).toEqual([]);
  });

  test("a change appears with its stages, from the watch event until nodes have applied it", async () => {
    list();
    const watch = await join("n1");
    await open("#/changes");
    drain();
    await shows("#changes-rows", /endpoints ns\/web\s+0 of 1/);
    await watch.batch();
    applied(watch);
    await shows("#changes-rows", /endpoints ns\/web\s+1 of 1/);
    const bar = `document.querySelector("#changes-rows .bar")?.getAttribute("aria-label") ?? ""`;
    await expect
      .poll(() => browser.evaluate(bar), wait)
      .toMatch(/watch event to store .*, wait on the node 1\.0 ms, render 2\.0 ms/);
    await browser.evaluate(`document.querySelector("#changes-rows a").click()`);
    await shows("#change", /commit\s+3\.0 ms/);
    await browser.evaluate(`location.hash = "#/overview"`);
    await shows("#convergence", "Convergence of changes");
    expect(browser.errors).toEqual([]);
  });

  test("the details of a change stay after 50 newer changes", async () => {
    list();
    drain();
    await open(`#/changes/${store.snapshot.revision}`);
    await shows("#change", "endpoints ns/web");
    for (let count = 0; count < 50; count += 1) {
      store.apply([{ kind: "put-service", service: service({ name: `more-${count}` }) }]);
    }
    await shows("#changes-rows", "service ns/more-49");
    expect(await browser.text("#change")).toContain("endpoints ns/web");
  });

  test("the details of a Service say which endpoints a node uses, and why, and follow changes", async () => {
    list();
    await open("#/services/ns/web");
    await shows("#service", /10\.1\.0\.2\s+web-2\s+n2\s+–\s+ready/);
    await browser.evaluate(
      `{ const form = document.querySelector("#service form"); form.node.value = "n1"; form.requestSubmit(); }`,
    );
    await shows("#service", /10\.1\.0\.1:8080\s+http\/TCP\s+web-1\s+n1\s+yes/);
    drain();
    await shows("#service", /web-2\s+n2\s+no\s+.*terminating/);
    await shows("#services-rows", /ns\/web\s+ClusterIP\s+10\.96\.0\.1\s+http:80\/TCP\s+1\s+1\s+0/);
    expect(browser.errors).toEqual([]);
  });

  test("the explain form shows verdict, steps and assumptions, and what is wrong with a request", async () => {
    list();
    await open("#/explain?node=n1&destination=ns%2Fweb");
    await shows("#connection", "Live");
    await browser.evaluate(`document.querySelector("#explain-form").requestSubmit()`);
    await shows("#explanation h2", "10.96.0.1:80/TCP: forward");
    await shows("#explanation", "The sender is a pod on the node.");
    await browser.evaluate(
      `{ const form = document.querySelector("#explain-form"); form.destination.value = "ns/none"; form.requestSubmit(); }`,
    );
    await shows("#explanation", `destination "ns/none" is neither an IP address nor`);
    // The refusal of the watcher is an HTTP error, which the browser logs.
    expect(browser.errors.filter((text) => !text.includes("status of 400"))).toEqual([]);
  });

  test("filters choose the Services and nodes that are shown, and say how many", async () => {
    const names = Array.from({ length: 450 }, (_, index) => `n${index + 1}`);
    store.replace({
      services: [service(), service({ name: "dns" })],
      slices: [],
      nodes: names.map((name) => node(name)),
    });
    await open("#/nodes");
    await shows("#nodes-count", "450 nodes; the first 200 are shown");
    const enter = (id: string, text: string) =>
      browser.evaluate(
        `{ const e = document.querySelector("${id}"); e.value = "${text}"; e.dispatchEvent(new Event("input")); }`,
      );
    await enter("#nodes-filter", "N44");
    await shows("#nodes-count", "11 of 450 nodes");
    await enter("#nodes-state", "current");
    await shows("#nodes-count", "0 of 450 nodes");
    await browser.evaluate(`location.hash = "#/services"`);
    await enter("#services-filter", "dns");
    await shows("#services-count", "1 of 2 Services");
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
    for (const section of ["overview", "services", "services/ns/web", "nodes", "changes", "explain"]) {
      await open(`#/${section}`);
      await shows("#connection", "Live");
    }
    store.apply([{ kind: "put-service", service: { ...web, type: hostile as ServiceType } }]);
    await watch.batch();
    watch.send({ Ack: { Failed: BigInt(store.snapshot.revision), Error: hostile } });
    await open("#/nodes");
    await shows("#nodes-rows", hostile);
    await open("#/changes");
    await shows("#changes-rows", hostile);
    await open("#/services");
    await shows("#services-rows", hostile);
    await open(`#/services/${encodeURIComponent("ns")}/web`);
    await shows("#service", hostile);
    await open(`#/services/${encodeURIComponent(hostile)}/${encodeURIComponent(hostile)}`);
    await shows("#service h2", hostile);
    expect(await browser.evaluate(`document.querySelectorAll("img, main script, [onerror]").length`)).toBe(0);
    expect(browser.errors).toEqual([]);
  });

  test("it works behind a path prefix, and shows that the watcher is gone and back", async ({ skip }) => {
    skip(!isEverything, "only in npm run test:all");
    list();
    const proxy = await serveBehindPrefix("/kube/kpng", server.page);
    try {
      const { port } = proxy.address() as AddressInfo;
      await browser.open(`http://127.0.0.1:${port}/kube/kpng/#/services/ns/web`);
      await shows("#connection", "Live");
      await shows("#service", "web-2");
      await shows("#services-rows", "ns/dns");
      expect(browser.errors).toEqual([]);
      const { page } = server;
      await server.stop();
      await shows("#connection", "Not connected");
      server = await servePage(store, page);
      await shows("#connection", "Live");
    } finally {
      proxy.closeAllConnections();
      proxy.close();
    }
  });

  test("on a narrow screen, tables scroll by themselves and the page does not", async () => {
    list();
    await browser.send("Emulation.setDeviceMetricsOverride", {
      width: 320,
      height: 600,
      deviceScaleFactor: 1,
      mobile: false,
    });
    await open("#/services/ns/web");
    await shows("#service", "web-2");
    const widths = await browser.evaluate("[document.documentElement.scrollWidth, innerWidth]");
    await browser.send("Emulation.clearDeviceMetricsOverride");
    expect(widths).toEqual([320, 320]);
  });

  test("a page that is opened in a hidden tab has no event stream until it is shown", async () => {
    list();
    const source = `
      let state = "hidden";
      Object.defineProperty(document, "visibilityState", { get: () => state });
      window.streams = 0;
      window.EventSource = class extends EventSource { constructor(url) { super(url); window.streams += 1; } };
      window.showTab = () => { state = "visible"; document.dispatchEvent(new Event("visibilitychange")); };`;
    const { identifier } = await browser.send<{ identifier: string }>("Page.addScriptToEvaluateOnNewDocument", {
      source,
    });
    try {
      await open();
      await shows("#overview-title", "Overview");
      await expect.poll(() => browser.evaluate("document.readyState"), wait).toBe("complete");
      expect(await browser.evaluate("window.streams")).toBe(0);
      await browser.evaluate("window.showTab()");
      await shows("#connection", "Live");
    } finally {
      await browser.send("Page.removeScriptToEvaluateOnNewDocument", { identifier });
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
    await shows("#services-rows", "ns/web");
    await tabTo("services-filter");
    await browser.type("web");
    await shows("#services-count", "1 of 2 Services");
    await tabTo("ns/web");
    await browser.press("Enter");
    await expect.poll(focused, wait).toBe("ns/web");
    await shows("#service", "web-2");
  });

  test("text has enough contrast in the light and in the dark scheme, and the structure has names", async () => {
    list();
    await join("n1");
    for (const scheme of ["light", "dark"] as const) {
      await browser.setColorScheme(scheme);
      await open();
      await shows("#connection", "Live");
      await shows("#facts", /Services\s+2/);
      for (const section of ["overview", "services", "nodes", "changes", "explain"]) {
        await browser.evaluate(`location.hash = "#/${section}"`);
        await expect.poll(() => browser.evaluate(`document.getElementById("${section}").hidden`), wait).toBe(false);
        expect(await browser.evaluate(lowContrast), `${section}, ${scheme}`).toEqual([]);
        expect(await browser.evaluate(withoutNames), section).toEqual([]);
      }
    }
    const backgrounds = [];
    for (const scheme of ["light", "dark"] as const) {
      await browser.setColorScheme(scheme);
      backgrounds.push(await browser.evaluate(`getComputedStyle(document.body).backgroundColor`));
    }
    expect(backgrounds).toEqual(["rgb(255, 255, 255)", "rgb(16, 21, 27)"]);
    expect(browser.errors).toEqual([]);
  });
});

/** A reverse proxy that removes a path prefix. */
async function serveBehindPrefix(prefix: string, target: string): Promise<Server> {
  const proxy = createServer((request, response) => {
    if (request.url?.startsWith(`${prefix}/`) !== true) {
      response.writeHead(404).end();
      return;
    }
    const path = request.url.slice(prefix.length);
    const forwarded = httpRequest(`http://${target}${path}`, { headers: { accept: "*/*" } }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    forwarded.on("error", () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
    response.on("close", () => forwarded.destroy());
    forwarded.end();
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return proxy;
}
