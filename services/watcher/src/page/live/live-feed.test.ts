import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { Registry } from "prom-client";
import { beforeEach, expect, test } from "vitest";
import type { InspectContext } from "../../inspect/inspect-context.ts";
import { inspection } from "../../inspect/inspection.ts";
import { countObjects } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { Acknowledgement } from "../../stream/session/acknowledgement.ts";
import { proxyNamesOf } from "../../stream/session/requests.ts";
import { type Subscriber, Subscribers } from "../../stream/session/subscribers.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { LiveFeed, maxPages, type PageStream } from "./live-feed.ts";
import type { LiveFrame } from "./live-rows.ts";
import { LiveState } from "./live-state.ts";

let store: Store;
let subscribers: Subscribers;
let context: InspectContext;
let clock: ManualClock;
let feed: LiveFeed;
let nowMs = 1_000_000;

beforeEach(() => {
  store = new Store();
  subscribers = new Subscribers(new Registry(), () => nowMs);
  ({ context } = inspection({ store, subscribers, proxyNames: proxyNamesOf([]) }));
  store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1"), node("n2")] });
  clock = new ManualClock();
  feed = new LiveFeed(context, clock);
});

class FakePage implements PageStream {
  readonly frames: LiveFrame[] = [];
  readonly failures: unknown[] = [];
  reads = true;
  #drained: () => void = () => undefined;

  write(event: Buffer): boolean {
    this.frames.push(JSON.parse(event.toString().replace(/^data: /, "")) as LiveFrame);
    return this.reads;
  }

  onDrain(drained: () => void): void {
    this.#drained = drained;
  }

  fail(error: unknown): void {
    this.failures.push(error);
  }

  readAll(): void {
    this.reads = true;
    this.#drained();
  }

  get kinds(): readonly string[] {
    return this.frames.map(({ isWhole }) => (isWhole ? "whole" : "later"));
  }
}

function subscribe(nodeName: string): Subscriber {
  const subscriber = subscribers.add("local", "", store);
  subscriber.nodeName = nodeName;
  send(subscriber, 0);
  apply(subscriber);
  return subscriber;
}

function send(subscriber: Subscriber, after: number): void {
  subscriber.sent({ after, revision: store.snapshot.revision, computedAtMs: 0, byteCount: 1 });
}

function apply(subscriber: Subscriber): void {
  subscriber.acknowledge(new Acknowledgement(store.snapshot.revision, 0, ""));
}

const change = (name: string) => store.apply([{ kind: "put-service", service: service({ name }) }]);

test("a page gets a whole frame at once, and then what changed, once a second", async () => {
  const page = new FakePage();
  feed.add(page);
  await clock.advance(0);
  expect(page.kinds).toEqual(["whole"]);
  expect(page.frames[0]?.nodes.map(({ name, state }) => [name, state])).toEqual([
    ["n1", "absent"],
    ["n2", "absent"],
  ]);
  change("dns");
  change("api");
  await clock.advance(1_000);
  expect(page.kinds).toEqual(["whole", "later"]);
  expect(page.frames[1]?.services).toMatchObject([{ name: "dns" }, { name: "api" }]);
  expect(page.frames[1]?.changes.map(({ revision }) => revision)).toEqual([3, 2]);
  await clock.advance(1_000);
  expect(page.frames[2]).toMatchObject({ nodes: [], changes: [], services: [] });
});

test("a page that does not read gets no frames, and a whole one when it reads again", async () => {
  const page = new FakePage();
  feed.add(page);
  await clock.advance(0);
  page.reads = false;
  await clock.advance(10_000);
  expect(page.kinds).toEqual(["whole", "later"]);
  page.readAll();
  await clock.advance(2_000);
  expect(page.kinds).toEqual(["whole", "later", "whole", "later"]);
});

test("nothing runs without a page, and the number of pages is limited", async () => {
  const pages = Array.from({ length: maxPages }, () => new FakePage());
  for (const page of pages) feed.add(page);
  expect(feed.isFull).toBe(true);
  await clock.advance(1_000);
  expect(pages.at(-1)?.frames.length).toBeGreaterThan(0);
  for (const page of pages) feed.remove(page);
  expect(feed.isFull).toBe(false);
  const counts = pages.map(({ frames }) => frames.length);
  await clock.advance(5_000);
  expect(pages.map(({ frames }) => frames.length)).toEqual(counts);
});

test("a frame that cannot be computed ends the pages, and the next page begins with a whole frame", async () => {
  let isBroken = false;
  const changes = new Proxy(context.changes, {
    get: (target, name) => {
      if (isBroken) throw new Error("broken");
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  feed = new LiveFeed({ ...context, changes }, clock);
  const pages = [new FakePage(), new FakePage()];
  for (const page of pages) feed.add(page);
  await clock.advance(0);
  isBroken = true;
  await clock.advance(1_000);
  await expect.poll(() => pages.map(({ failures }) => String(failures))).toEqual(["Error: broken", "Error: broken"]);
  isBroken = false;
  const next = new FakePage();
  feed.add(next);
  await clock.advance(0);
  expect([next.kinds, pages[0]?.kinds]).toEqual([["whole"], ["whole"]]);
});

test("a node that keeps up has the same row after each change; one that does not is behind after a second", () => {
  const [fast, slow] = [subscribe("n1"), subscribe("n2")];
  const state = new LiveState(context);
  state.advance(nowMs);
  for (let count = 1; count <= 3; count += 1) {
    const after = store.snapshot.revision;
    change(`s${count}`);
    for (const one of [fast, slow]) send(one, after);
    nowMs += 500;
    apply(fast);
    const { nodes } = state.advance(nowMs);
    expect(nodes.map(({ name, state: nodeState }) => [name, nodeState])).toEqual(count === 2 ? [["n2", "behind"]] : []);
  }
  expect(state.whole(nowMs).status).toMatchObject({ maxLagMs: 1_500, states: { current: 1, behind: 1 } });
  apply(slow);
  expect(state.advance(nowMs).nodes).toMatchObject([{ name: "n2", state: "current" }]);
});

test("a node whose first batch takes long is behind until it has applied it", () => {
  const state = new LiveState(context);
  const subscriber = subscribers.add("local", "", store);
  subscriber.nodeName = "n1";
  send(subscriber, 0);
  state.advance(nowMs);
  nowMs += 2_000;
  expect(state.advance(nowMs).nodes).toMatchObject([{ name: "n1", state: "behind" }]);
  apply(subscriber);
  expect(state.advance(nowMs).nodes).toMatchObject([{ name: "n1", state: "current" }]);
});

test("a stream that ends while that of another node begins changes both rows", () => {
  const subscriber = subscribe("n1");
  const state = new LiveState(context);
  state.advance(nowMs);
  subscriber.close();
  subscribe("n2");
  expect(state.advance(nowMs).nodes).toMatchObject([
    { name: "n1", state: "absent" },
    { name: "n2", state: "current" },
  ]);
});

test("a failing node has its error, and a change that is applied later is sent again with its stages", () => {
  const subscriber = subscribe("n1");
  const state = new LiveState(context);
  state.advance(nowMs);
  change("dns");
  send(subscriber, 1);
  expect(state.advance(nowMs).changes).toMatchObject([{ revision: 2, sentCount: 1, appliedCount: 0 }]);
  subscriber.acknowledge(new Acknowledgement(1, 2, "nft refused"));
  expect(state.advance(nowMs).nodes).toMatchObject([{ name: "n1", state: "failing", error: "nft refused" }]);
  subscriber.acknowledge(new Acknowledgement(2, 0, "", { waitMs: 1, renderMs: 2, commitMs: 3 }));
  const { changes, nodes } = state.advance(nowMs);
  expect(changes).toMatchObject([
    { revision: 2, appliedCount: 1, slowest: { stages: { wait: 1, render: 2, commit: 3 } } },
  ]);
  expect(nodes).toMatchObject([{ name: "n1", state: "current", error: "" }]);
});

test("the counts stay those of the cluster while Services, slices and nodes come and go", () => {
  const state = new LiveState(context);
  const steps: readonly (() => void)[] = [
    () => change("dns"),
    () => store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.1"), endpoint("10.1.0.2")]) }]),
    () => store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.3")], { name: "more" }) }]),
    () => store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.4")], { serviceName: "unknown" }) }]),
    () => store.apply([{ kind: "delete-service", key: "ns/dns" }]),
    () => store.replace({ services: [], slices: [slice([endpoint("10.1.0.5")])], nodes: [node("n3")] }),
  ];
  for (const step of steps) {
    step();
    expect(state.advance(nowMs).status).toMatchObject(countObjects(store.snapshot));
  }
});

test("after a change of very many Services, the page lists them instead", () => {
  const state = new LiveState(context);
  const services = Array.from({ length: 501 }, (_, index) => service({ name: `s${index}` }));
  store.apply(services.map((one) => ({ kind: "put-service", service: one })));
  expect(state.advance(nowMs)).toMatchObject({ services: [], mustListServices: true });
});
