import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { type Client, createClient } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState, SubscriberKind } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { addresses, draining, endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { postJson } from "@kpng/watcher/testing/raw-watch.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { findBinaries } from "../cluster/binaries.ts";
import { GrpcJsWatch } from "../peer/grpc-js-client.ts";

const run = promisify(execFile);

let store: Store;
let server: TestServer;
const watches: GrpcJsWatch[] = [];

beforeEach(async () => {
  store = new Store();
  server = await serveStore(store);
});
afterEach(async () => {
  for (const each of watches.splice(0)) each.close();
  await server.stop();
});

const client = (): Client<typeof InspectService> => createClient(InspectService, dial({ api: server.address }));
const nodeRow = async (name: string) => (await client().listNodes({ name })).nodes[0];

/** Opens a stream, which is closed after the test. */
function watch(): GrpcJsWatch {
  const opened = new GrpcJsWatch(server.address, "local");
  watches.push(opened);
  return opened;
}

/** Subscribes a node and acknowledges its first batch. */
async function join(name: string): Promise<GrpcJsWatch> {
  const joined = watch();
  await joined.ask({ NodeName: name, Features: [Feature.Extended], Subscriber: { Name: "kpng-test", Version: "1" } });
  joined.acknowledge(store.snapshot.revision);
  joined.send({ NodeName: name, Features: [Feature.Extended] });
  const states: readonly unknown[] = [ApplyState.CURRENT, ApplyState.UNKNOWN];
  await expect.poll(async () => states.includes((await nodeRow(name))?.state), { timeout: 30_000 }).toBe(true);
  return joined;
}

/** Lists two Services with three endpoints on two of three nodes. */
function list(): void {
  store.replace({
    services: [service(), service({ name: "dns", clusterIPs: addresses("10.96.0.2"), internalTrafficPolicy: "Local" })],
    slices: [
      slice([endpoint("10.1.0.1", { podName: "web-1" }), endpoint("10.1.0.2", { podName: "web-2", nodeName: "n2" })]),
      slice([endpoint("10.1.0.9", { podName: "dns-1", nodeName: "n2" })], { name: "dns-a", serviceName: "dns" }),
    ],
    nodes: [node("n1", { podCIDRs: ["10.1.0.0/24"] }), node("n2"), node("n3")],
  });
}

/** Makes endpoint `web-2` terminating. */
function change(): void {
  const terminating = endpoint("10.1.0.2", { podName: "web-2", nodeName: "n2", conditions: draining });
  store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.1", { podName: "web-1" }), terminating]) }], {
    source: "kube",
    receivedAtMs: Date.now(),
  });
}

// Not in a hook: the first compilation takes minutes, and has no limit.
const binaries = await findBinaries(["grpcurl"]);

test("grpcurl alone shows a node's view, and what changes in it as it changes", async (context) => {
  if (binaries.kind === "missing" && process.env.CI !== "true") context.skip(`no grpcurl: ${binaries.reason}`);
  const program = binaries.kind === "found" ? (binaries.paths.grpcurl ?? "") : "";
  list();
  const request = JSON.stringify({ NodeName: "n1", Count: 2 });
  const watching = run(program, ["-plaintext", "-d", request, server.address, "localv1.Sets/Watch"]);
  await expect.poll(() => [...server.subscribers.open].map(({ sentRevision }) => sentRevision)).toEqual([1]);
  expect(await nodeRow("n1")).toMatchObject({ state: ApplyState.ABSENT, subscriberCount: 0, observerCount: 1 });
  change();
  // The command requested two views and ends when it has them.
  const { stdout } = await watching;
  expect(stdout.match(/"Sync"/g)).toHaveLength(2);
});

describe("over Connect, as curl calls", () => {
  const ask = async (method: string, request: object): Promise<[number, Record<string, unknown>]> => {
    const path = `/kpng.inspect.v1.InspectService/${method}`;
    const { status, answer } = await postJson(server.address, path, JSON.stringify(request));
    return [status, JSON.parse(answer)];
  };

  test.each([
    ["ListServices", { pageSize: 9_999 }, /page_size 9999 exceeds the limit of 1000/],
    ["ListSubscribers", { pageToken: "x" }, /invalid page_token/],
    ["ListChanges", { pageToken: "5." }, /invalid page_token/],
    ["Explain", { nodeName: "n1", destination: "10.96.0.1" }, /port is 0/],
    ["Explain", { nodeName: "n1", destination: "none", port: 80 }, /"none" is neither/],
    [
      "Explain",
      { nodeName: "n1", destination: "10.96.0.1", port: 80, sourceAddress: "fd00::1" },
      /different address families/,
    ],
    [
      "Explain",
      { nodeName: "n1", destination: "10.96.0.1", port: 80, settings: { clusterCidrs: ["x"] } },
      /cluster_cidrs "x" is not a CIDR/,
    ],
    ["ListNodeEndpoints", { nodeName: "n".repeat(300) }, /300 characters, more than 253/],
    ["ListNodeEndpoints", { nodeName: "" }, /node_name must not be empty/],
  ])("%s rejects an invalid request: %j", async (method, request, message) => {
    list();
    const [status, answer] = await ask(method, request);
    expect([status, answer.code]).toEqual([400, "invalid_argument"]);
    expect(answer.message).toMatch(message);
  });

  test("before the first list, the error says what the watcher waits for", async () => {
    const [status, answer] = await ask("ListServices", {});
    expect([status, answer.message]).toEqual([503, "waiting for the first list of services, slices, nodes"]);
    const [, numbers] = await ask("GetStatus", {});
    expect(numbers.missingKinds).toEqual(["services", "slices", "nodes"]);
  });
});

describe("lists", () => {
  test("come in pages without gaps and duplicates", async () => {
    list();
    const more = Array.from({ length: 25 }, (_, at) => service({ name: `s${at}` }));
    store.apply(more.map((each) => ({ kind: "put-service", service: each })));
    const names: string[] = [];
    for (let pageToken = "", pages = 1; ; pages += 1) {
      const page = await client().listServices({ pageSize: 10, pageToken });
      names.push(...page.services.map(({ name }) => name));
      pageToken = page.nextPageToken;
      if (pageToken !== "") continue;
      expect(pages).toBe(3);
      break;
    }
    expect(names).toEqual([...names].sort());
    expect(new Set(names).size).toBe(27);
  });

  test("of endpoints and nodes, too", async () => {
    list();
    const first = await client().listEndpoints({ pageSize: 1 });
    expect(first.endpoints.map(({ service: name }) => name)).toEqual(["dns"]);
    const second = await client().listEndpoints({ pageSize: 1, pageToken: first.nextPageToken });
    expect(second.endpoints.map(({ pod }) => pod)).toEqual(["web-1", "web-2"]);
    expect(second.nextPageToken).toBe("");
    expect((await client().listEndpoints({ node: "n2" })).endpoints.map(({ pod }) => pod)).toEqual(["dns-1", "web-2"]);
    const nodesPage = await client().listNodes({ pageSize: 2 });
    expect(nodesPage.nodes.map(({ name }) => name)).toEqual(["n1", "n2"]);
    const rest = await client().listNodes({ pageSize: 2, pageToken: nodesPage.nextPageToken });
    expect([rest.nodes.map(({ name }) => name), rest.nextPageToken]).toEqual([["n3"], ""]);
  });

  test("a page ends early if few of many objects match", async () => {
    const slices = Array.from({ length: 5_001 }, (_, at) => {
      return slice([endpoint("10.1.0.1")], { name: "a", serviceName: `s${10_000 + at}` });
    });
    store.replace({ services: [], slices, nodes: [] });
    const first = await client().listEndpoints({ node: "n9" });
    expect([first.endpoints, first.nextPageToken]).toEqual([[], "ns/s14999"]);
    const last = await client().listEndpoints({ node: "n9", pageToken: first.nextPageToken });
    expect([last.endpoints, last.nextPageToken]).toEqual([[], ""]);
  });

  test("an unknown node is listed if it has a subscriber", async () => {
    list();
    await join("typo");
    expect(await nodeRow("typo")).toMatchObject({
      isKnown: false,
      state: ApplyState.UNKNOWN,
      subscriberCount: 1,
      observerCount: 0,
      programs: ["kpng-test"],
    });
    const { nodes: found } = await client().listNodes({ states: [ApplyState.UNKNOWN] });
    expect(found.map(({ name }) => name)).toEqual(["typo"]);
  });

  test("a node whose last attempt failed on an earlier stream is failing until it acknowledges", async () => {
    list();
    const failing = watch();
    const LastFailure = { Error: "nft refused line 7", AgeMicros: 5_000_000n };
    await failing.ask({ NodeName: "n1", Features: [Feature.Extended], LastFailure });
    expect(await nodeRow("n1")).toMatchObject({ state: ApplyState.FAILING, error: "nft refused line 7" });
    failing.acknowledge(store.snapshot.revision);
    await expect.poll(async () => (await nodeRow("n1"))?.error).toBe("");
  });

  test("a subscriber that only observes is listed as such, and does not count as a node", async () => {
    list();
    await join("n1");
    const observer = watch();
    for (const NodeName of ["n1", "made-up"]) {
      await observer.ask({ NodeName, Features: [Feature.Extended], Subscriber: { Name: "viewer", Observes: true } });
      const row = await nodeRow("n1");
      expect(row).toMatchObject({ state: ApplyState.CURRENT, subscriberCount: 1, programs: ["kpng-test"] });
    }
    expect(await nodeRow("made-up")).toBeUndefined();
    const { subscribers: observers } = await client().listSubscribers({ node: "made-up" });
    expect(observers).toMatchObject([{ kind: SubscriberKind.OBSERVER, program: "viewer" }]);
  });
});

describe("watches", () => {
  let open: AbortController;
  beforeEach(() => {
    open = new AbortController();
  });
  afterEach(() => open.abort());

  test("start with all objects and continue with changes", async () => {
    list();
    const { signal } = open;
    const services = client().watchServices({}, { signal })[Symbol.asyncIterator]();
    const endpoints = client().watchEndpoints({ namespace: "ns", service: "web" }, { signal })[Symbol.asyncIterator]();
    expect((await services.next()).value).toMatchObject({ revision: 1n, isComplete: true, deleted: [] });
    expect((await endpoints.next()).value.endpoints).toHaveLength(2);
    change();
    expect((await endpoints.next()).value.endpoints).toMatchObject([{ pod: "web-2", isTerminating: true }]);
    expect((await services.next()).value.services).toMatchObject([
      { name: "web", endpoints: { ready: 1, terminating: 1 } },
    ]);
    store.apply([
      { kind: "delete-service", key: "ns/web" },
      { kind: "delete-slice", key: "ns/web/web-a" },
    ]);
    expect((await services.next()).value).toMatchObject({ services: [], deleted: ["ns/web"] });
    expect((await endpoints.next()).value.deleted).toEqual(["ns/web/web-a/10.1.0.1", "ns/web/web-a/10.1.0.2"]);
  });

  test("of nodes, subscribers and changes follow acknowledgements", async () => {
    const watchedChanges = client().watchChanges({}, { signal: open.signal })[Symbol.asyncIterator]();
    const firstChanges = watchedChanges.next();
    list();
    const watchedNodes = client().watchNodes({}, { signal: open.signal })[Symbol.asyncIterator]();
    const subscribers = client().watchSubscribers({}, { signal: open.signal })[Symbol.asyncIterator]();
    expect((await watchedNodes.next()).value.nodes).toHaveLength(3);
    expect((await firstChanges).value).toMatchObject({ revision: 1n, changes: [{ revision: 1n }], isComplete: true });
    expect((await subscribers.next()).value).toMatchObject({ subscribers: [], isComplete: true });
    const one = await join("n1");
    expect((await watchedNodes.next()).value.nodes).toMatchObject([{ name: "n1" }]);
    expect((await subscribers.next()).value.subscribers).toMatchObject([{ node: "n1" }]);
    change();
    await one.batch();
    one.acknowledge(store.snapshot.revision);
    for (let appliedCount = 0; appliedCount === 0; ) {
      const { changes } = (await watchedChanges.next()).value;
      expect(changes).toMatchObject([{ revision: 2n }]);
      appliedCount = changes[0].appliedCount;
    }
    const { id } = (await client().listSubscribers({})).subscribers[0] ?? {};
    one.close();
    for (;;) {
      const { deleted } = (await subscribers.next()).value;
      if (deleted.length === 0) continue;
      expect(deleted).toEqual([id]);
      break;
    }
  });

  test("of nodes follow the acknowledgement of a whole view, and a stream that replaces another", async () => {
    list();
    const watched = client().watchNodes({ name: "n1" }, { signal: open.signal })[Symbol.asyncIterator]();
    /** Resolves when the watch shows the node in this state. */
    const shown = async (state: ApplyState, program: string): Promise<void> => {
      for (let isShown = false; !isShown; ) {
        const [row] = (await watched.next()).value.nodes;
        isShown = row?.state === state && row.programs[0] === program;
      }
    };
    for (const program of ["kpng-one", "kpng-other"]) {
      const opened = watch();
      await opened.ask({ NodeName: "n1", Features: [Feature.Extended], Subscriber: { Name: program } });
      await shown(ApplyState.BEHIND, program);
      opened.acknowledge(store.snapshot.revision);
      await shown(ApplyState.CURRENT, program);
      opened.close();
    }
  });

  test("end when the watcher stops", async () => {
    list();
    const watched = client().watchNodes({})[Symbol.asyncIterator]();
    await watched.next();
    const ended = expect(watched.next()).rejects.toThrow(/unavailable/);
    await server.stop();
    await ended;
  });
});
