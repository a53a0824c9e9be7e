import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { readLocalAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { createReadableLog } from "@kpng/backend-kit/testing/steps.ts";
import type { AddressSet } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { EndpointAddress, Frontend, Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { Registry } from "prom-client";
import { listen, portOf } from "../../../../test/cluster/ports.ts";
import { type Entry, MapEntry } from "../entry/entry.ts";
import { UserspaceRuleSet } from "../rules/userspace-rule-set.ts";
import { type TrafficSettings, UserspaceRuntime } from "../rules/userspace-runtime.ts";

/** The Service that the tests of `listen/`, `relay/` and `rules/` serve with the classes of this file. */
export const key: ServiceKey = "default/web";

const settings: TrafficSettings = {
  tcp: { idleMs: 60_000, halfClosedMs: 60_000, drainMs: 60_000 },
  udp: { idleMs: 60_000, streamIdleMs: 60_000, streamAfterMs: 0 },
  sweepMs: 50,
  maxConnections: 1_000,
  maxListenersPerService: 1_000,
};

/** A Service with one port, as a test wants it. */
export interface ServiceOptions {
  readonly endpoints: readonly EndpointAddress[];
  readonly protocol?: "TCP" | "UDP" | undefined;
  readonly affinitySeconds?: number | undefined;
  readonly routes?: Frontend["routes"] | undefined;
  readonly sources?: Frontend["sources"];
}

/** Returns the plan of Service default/web. */
export function servicePlan(options: ServiceOptions): ServicePlan {
  const { endpoints, protocol = "TCP", affinitySeconds, sources } = options;
  const route: Route =
    endpoints.length === 0 ? { kind: "refuse" } : { kind: "balance", set: "cluster", isMasqueraded: true };
  const { routes = { pod: route, node: route, outside: route } } = options;
  const place = { kind: "clusterIP", address: "10.96.0.1", protocol, port: 80 } as const;
  const port = { name: key, protocol, port: 80, affinitySeconds, sets: { cluster: endpoints, local: [] } };
  return {
    key,
    family: "v4",
    hairpin: [],
    healthCheck: undefined,
    ports: [{ ...port, frontends: [{ ...place, sources, routes }] }],
  };
}

/** Returns a plan of these Services for one family. */
export function familyPlan(plans: ReadonlyMap<ServiceKey, ServicePlan>): FamilyPlan {
  return { node: nodePlan({ family: "v4" }), keys: () => plans.keys(), service: (one) => plans.get(one) };
}

/** Listeners of Service default/web in this process, at a local port. */
export class RunningService implements AsyncDisposable {
  readonly runtime: UserspaceRuntime;
  readonly ruleSet: UserspaceRuleSet;
  readonly log = createReadableLog();
  readonly metrics = new Registry();

  constructor(
    given: Partial<TrafficSettings> = {},
    entry: Entry = mapEntry(),
    localAddresses: () => AddressSet = readLocalAddresses,
  ) {
    this.runtime = new UserspaceRuntime({ ...settings, ...given }, this.log.log, this.metrics);
    this.ruleSet = new UserspaceRuleSet({ entry, runtime: this.runtime, localAddresses });
  }

  /** Begins to serve. */
  static async open(options: ServiceOptions, given: Partial<TrafficSettings> = {}): Promise<RunningService> {
    const running = new RunningService(given);
    await running.apply(options);
    return running;
  }

  /** Replaces the plan; undefined deletes the Service. */
  async apply(options: ServiceOptions | undefined): Promise<void> {
    const plans = new Map(options === undefined ? [] : [[key, servicePlan(options)] as const]);
    await this.ruleSet.sync(familyPlan(plans), new Set([key]), { committing: () => undefined });
  }

  /** The local port at which the Service answers. */
  get port(): number {
    const [line = ""] = this.ruleSet.desired.lines();
    return Number(/ serve at \S+:(\d+)$/.exec(line)?.[1]);
  }

  ends(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.runtime.table.of(key).ends);
  }

  async connect(): Promise<Socket> {
    const socket = connect({ host: "127.0.0.1", port: this.port, allowHalfOpen: true });
    await once(socket, "connect");
    // The service resets what is open at the end of a test.
    socket.on("error", () => undefined);
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.ruleSet.close();
  }
}

/** An entry that maps Services to ports of an address. */
export function mapEntry(address = "127.0.0.1"): MapEntry {
  // Other tests run at the same time: a port that is taken is skipped.
  return new MapEntry({
    family: "v4",
    address,
    ports: { first: 21_000 + (process.pid % 80) * 100, last: 29_999 },
    print: () => undefined,
  });
}

/** A TCP endpoint of a test, at an address of 127.0.0.0/8 and a free port. */
export class TestEndpoint implements AsyncDisposable {
  readonly #server: Server;
  readonly sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static async open(onConnection: (socket: Socket) => void): Promise<TestEndpoint> {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      endpoint.sockets.add(socket);
      // Tests reset connections on purpose.
      socket.on("error", () => undefined);
      socket.on("close", () => endpoint.sockets.delete(socket));
      onConnection(socket);
    });
    const endpoint = new TestEndpoint(server);
    await listen(server);
    return endpoint;
  }

  get at(): EndpointAddress {
    return { address: "127.0.0.1", port: portOf(this.#server) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.sockets) socket.destroy();
  }
}

/** Returns everything that a socket receives until its end. Rejects if it is reset. */
export async function readAll(socket: Socket): Promise<string> {
  let text = "";
  for await (const data of socket) text += String(data);
  return text;
}
