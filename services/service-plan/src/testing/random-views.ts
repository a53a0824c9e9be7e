import { type AddressSet, type Family, families, toAddressSet } from "@kpng/model/address.ts";
import type { NodeView, ServiceView, ViewEndpoint, ViewNode } from "@kpng/model/node-view.ts";
import {
  isExternallyAccessible,
  type Protocol,
  type Service,
  type ServicePort,
  type TrafficPolicy,
} from "@kpng/model/service.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { FrontendClaims } from "../frontend-claims.ts";
import { type ProxySettings, planNode } from "../plan-node.ts";
import { makeEndpointSets, planService } from "../plan-service.ts";
import type { NodePlan, ServicePlan } from "../service-plan.ts";

/** A node with Services and settings, chosen at random, for tests that rules of iptables and nft agree with plans. */
export interface RandomState {
  readonly view: NodeView;
  readonly settings: ProxySettings;
  /** Addresses of the node's interfaces: eth0, cbr0, lo; on lo also the address that a load balancer may have. */
  readonly localAddresses: AddressSet;
}

const localAddresses = toAddressSet([
  "192.0.2.1",
  "10.1.1.1",
  "127.0.0.1",
  "198.51.100.99",
  "2001:db8:1::1",
  "fd00:1:1::1",
  "::1",
  "2001:db8:100::99",
]).set;
const node: Partial<ViewNode> = {
  addresses: ["192.0.2.1", "2001:db8:1::1"],
  podCIDRs: ["10.1.1.0/24", "fd00:1:1::/64"],
};

/** Returns the same state for the same seed. States keep the promises of a watcher; see {@link keepPromises}. */
export function randomState(seed: number): RandomState {
  const random = makeRandom(seed);
  const pick = makePick(random);
  const services = Array.from({ length: 1 + makeRandomBelow(random)(5) }, (_, number) => randomService(random, number));
  const detectLocalMode = pick<ProxySettings["detectLocalMode"]>(
    ...(["ClusterCIDR", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"] as const),
  );
  return {
    view: view(services, node),
    localAddresses,
    settings: {
      detectLocalMode,
      isMasqueradeAll: random() < 0.15,
      clusterCIDRs: random() < 0.2 ? [] : ["10.1.0.0/16", "fd00:1::/32"],
      podBridgeInterface: "cbr0",
      podInterfaceNamePrefix: "cbr",
      isLoopbackNodePorts: random() < 0.7,
      nodePortAddresses: pick(
        { kind: "cidrs", cidrs: [] },
        { kind: "primary" },
        { kind: "cidrs", cidrs: ["127.0.0.0/8", "10.0.0.0/8", "2001:db8::/32"] },
      ),
    },
  };
}

/** The node's part of the plans of a random state. */
export function nodePlanOf({ settings, view, localAddresses }: RandomState, family: Family): NodePlan {
  return planNode(settings, family, { node: view.node, localAddresses });
}

/** The plans of a random state, each without the frontends that other Services have. */
export function plansOf({ view }: Pick<RandomState, "view">, node: NodePlan): readonly ServicePlan[] {
  const plans = [...view.services.values()].map((service) => planService(service, node));
  const claims = new FrontendClaims();
  for (const plan of plans) claims.put(plan);
  return plans.map((plan) => claims.withOwned(plan));
}

function randomService(random: () => number, number: number): ServiceView {
  const pick = makePick(random);
  const chance = (probability: number): boolean => random() < probability;
  const type = pick<Service["type"]>("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer");
  const externalTrafficPolicy = pick<TrafficPolicy>("Cluster", "Local");
  const ports = randomPorts(random, number, type !== "ClusterIP" && chance(0.8));
  const isDualStack = chance(0.7);
  const balanced = type === "LoadBalancer" ? [`198.51.100.${10 + number}`, `2001:db8:100::${10 + number}`] : undefined;
  // One Service alone: iptables tries the next Service where the owner of a frontend has no endpoint for a sender.
  const bound = number === 0 && chance(0.5) ? ["198.51.100.99", "2001:db8:100::99"] : [];
  // Another Service's cluster IPs, and an address that several Services may have.
  const other = 10 + makeRandomBelow(random)(5);
  const claimed = chance(0.2) ? [`10.96.0.${other}`, `fd00:96::${other}`, "203.0.113.99", "2001:db8:e::99"] : [];
  const parts = service(`ns/s${number}`, {
    type,
    createdSeconds: pick(undefined, 1, 2),
    uid: pick(undefined, "x", "y"),
    isHeadless: chance(0.05),
    mapIP: chance(0.25),
    ips: isDualStack ? [`10.96.0.${10 + number}`, `fd00:96::${10 + number}`] : [`10.96.0.${10 + number}`],
    externalIPs: chance(0.3) ? [`203.0.113.${10 + number}`, `2001:db8:e::${10 + number}`, ...bound, ...claimed] : [],
    ...(balanced === undefined
      ? {}
      : { loadBalancerIPs: [...balanced, ...(chance(0.5) ? bound : []), ...(chance(0.3) ? claimed : [])] }),
    ports,
    internalTrafficPolicy: pick("Cluster", "Local"),
    externalTrafficPolicy,
    clientIPAffinitySeconds: chance(0.2) ? 60 : undefined,
    healthCheckNodePort: type === "LoadBalancer" && externalTrafficPolicy === "Local" ? 31_000 + number : 0,
    ipFilters: pick(
      ...([[], [], [{ sourceRanges: ["192.0.2.16/28", "2001:db8:1::20/124"] }]] as const),
      ...([[{ sourceRanges: ["192.0.2.0/24"] }], [{ sourceRanges: ["10.1.2.0/24", "0.0.0.0/0", "::/0"] }]] as const),
    ),
  });
  return keepPromises({ ...parts, endpoints: randomEndpoints(random, ports) }, chance(0.5));
}

function randomPorts(random: () => number, number: number, hasNodePorts: boolean): readonly ServicePort[] {
  const protocols: readonly Protocol[] = ["TCP", "UDP", "SCTP"].slice(0, 1 + makeRandomBelow(random)(3)) as Protocol[];
  return protocols.map((protocol, index) =>
    port(80 + makeRandomBelow(random)(2), {
      name: `p${index}`,
      protocol,
      nodePort: hasNodePorts ? 30_000 + 50 * number + index : 0,
    }),
  );
}

/** Pods of this node are 10.1.1.x and fd00:1:1::x, of another 10.1.2.x and fd00:1:2::x; some use a node's network. */
function randomEndpoints(random: () => number, servicePorts: readonly ServicePort[]): readonly ViewEndpoint[] {
  const pick = makePick(random);
  const below = makeRandomBelow(random);
  const hosts = new Map(
    Array.from({ length: below(5) }, () => {
      const [at, host] = [1 + below(2), 11 + below(6)];
      const addresses: readonly [string, string] =
        random() < 0.1 ? [`192.0.2.${at}`, `2001:db8:1::${at}`] : [`10.1.${at}.${host}`, `fd00:1:${at}::${host}`];
      return [addresses[0], { addresses, isOnNode: at === 1 }] as const;
    }),
  );
  return [...hosts].map(([key, { addresses, isOnNode }]) => {
    const isReady = random() < 0.9;
    return endpoint(key, {
      addresses: toAddressSet(random() < 0.8 ? addresses : addresses.slice(0, 1)).set,
      ports: servicePorts
        .filter(() => random() < 0.9)
        .map(({ name, protocol }) => ({ name, port: pick(8080, 8443), protocol })),
      isOnNode,
      use: pick({ cluster: true, local: isOnNode }, { cluster: isReady, local: isOnNode && isReady }),
      conditions: { ready: isReady, serving: true, terminating: !isReady },
    });
  });
}

/**
 * Makes a Service as a watcher would send it: if any usable endpoint exists and a policy may use the endpoints of all
 * nodes, there is one in the cluster set; and the flags say whether a usable endpoint exists.
 */
function keepPromises(item: ServiceView, hasRemote: boolean): ServiceView {
  const needsCluster = item.service.internalTrafficPolicy === "Cluster" || isExternallyAccessible(item.service);
  const endpoints = item.endpoints.map((each) =>
    each.use.local && needsCluster ? { ...each, use: { cluster: true, local: true } } : each,
  );
  const flags = (servicePort: ServicePort, family: Family): boolean => {
    const { cluster, local } = makeEndpointSets(endpoints, servicePort, family);
    return cluster.length + local.length > 0 || (!needsCluster && hasRemote);
  };
  const portHasEndpoints = item.service.ports.map((each) => ({ v4: flags(each, "v4"), v6: flags(each, "v6") }));
  return { ...item, endpoints, portHasEndpoints };
}

/** Runs a check on random states, and names the seed of the first that fails. */
export function onRandomStates(count: number, check: (state: RandomState, family: Family) => void): void {
  const first = Number(process.env.KPNG_PLAN_SEED ?? Math.floor(Math.random() * 2 ** 31));
  for (let seed = first; seed < first + count; seed++) {
    for (const family of families) {
      try {
        check(randomState(seed), family);
      } catch (error) {
        throw new Error(`KPNG_PLAN_SEED=${seed}, family ${family}: ${error instanceof Error ? error.message : error}`, {
          cause: error,
        });
      }
    }
  }
}
