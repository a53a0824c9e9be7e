import { type Client, createClient } from "@connectrpc/connect";
import type { Node as NodeRow } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { proxyNamesOf } from "@kpng/watcher/stream/session/requests.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { addresses, draining, endpoint, node, service, slice } from "@kpng/watcher/testing/build.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect } from "vitest";
import { GrpcJsWatch } from "../peer/grpc-js-client.ts";

/** A watcher that serves a store and answers questions about it; a new one for each test. */
export interface InspectedWatcher {
  readonly store: Store;
  readonly server: TestServer;
  readonly subscribers: Subscribers;
  /** Lists two Services with three endpoints on two of three nodes. */
  list(): void;
  /** Makes endpoint `web-2` terminating. */
  change(): void;
  /** Opens a stream, which is closed after the test. */
  watch(): GrpcJsWatch;
  /** Subscribes a node and acknowledges its first batch. */
  join(name: string): Promise<GrpcJsWatch>;
  /** Acknowledges the current revision. */
  applied(watch: GrpcJsWatch): void;
  client(): Client<typeof InspectService>;
  nodeRow(name: string): Promise<NodeRow | undefined>;
}

/** Registers hooks that start the watcher before each test and stop it afterwards. */
export function useInspectedWatcher(): InspectedWatcher {
  let store: Store;
  let server: TestServer;
  let subscribers: Subscribers;
  const watches: GrpcJsWatch[] = [];
  beforeEach(async () => {
    store = new Store();
    subscribers = new Subscribers(new Registry());
    const proxyNames = proxyNamesOf([]);
    const moreServices = [inspection({ store, subscribers, proxyNames })];
    server = await serveStore(store, { subscribers, proxyNames, moreServices });
  });
  afterEach(async () => {
    for (const each of watches.splice(0)) each.close();
    await server.stop();
  });
  const client = (): Client<typeof InspectService> => createClient(InspectService, dial({ api: server.address }));
  const nodeRow = async (name: string): Promise<NodeRow | undefined> => (await client().listNodes({ name })).nodes[0];
  const watch = (): GrpcJsWatch => {
    const opened = new GrpcJsWatch(server.address, "local");
    watches.push(opened);
    return opened;
  };
  const applied = (on: GrpcJsWatch): void => {
    const Timings = { WaitMicros: 1_000n, RenderMicros: 2_000n, CommitMicros: 3_000n };
    on.send({ Ack: { Applied: BigInt(store.snapshot.revision), Timings } });
  };
  const join = async (name: string): Promise<GrpcJsWatch> => {
    const joined = watch();
    await joined.ask({ NodeName: name, Features: [Feature.Extended], Subscriber: { Name: "kpng-test", Version: "1" } });
    applied(joined);
    joined.send({ NodeName: name, Features: [Feature.Extended] });
    const states: readonly unknown[] = [ApplyState.CURRENT, ApplyState.UNKNOWN];
    await expect.poll(async () => states.includes((await nodeRow(name))?.state), { timeout: 30_000 }).toBe(true);
    return joined;
  };
  return {
    get store() {
      return store;
    },
    get server() {
      return server;
    },
    get subscribers() {
      return subscribers;
    },
    list: () => list(store),
    change: () => change(store),
    watch,
    join,
    applied,
    client,
    nodeRow,
  };
}

function list(store: Store): void {
  store.replace({
    services: [service(), service({ name: "dns", clusterIPs: addresses("10.96.0.2"), internalTrafficPolicy: "Local" })],
    slices: [
      slice([endpoint("10.1.0.1", { podName: "web-1" }), endpoint("10.1.0.2", { podName: "web-2", nodeName: "n2" })]),
      slice([endpoint("10.1.0.9", { podName: "dns-1", nodeName: "n2" })], { name: "dns-a", serviceName: "dns" }),
    ],
    nodes: [node("n1", { podCIDRs: ["10.1.0.0/24"] }), node("n2"), node("n3")],
  });
}

function change(store: Store): void {
  const terminating = endpoint("10.1.0.2", { podName: "web-2", nodeName: "n2", conditions: draining });
  store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.1", { podName: "web-1" }), terminating]) }], {
    source: "kube",
    receivedAtMs: Date.now(),
  });
}
