import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { buildTwoNodes, type TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { type EndpointOption, named, publicAddress, type State, together } from "@kpng/laboratory/scenario/build.ts";
import {
  addressOf,
  clusterIP,
  describePacket,
  type Frontend,
  loadBalancerIP,
  n1,
  nodeAddress,
  outside,
  pod,
  type Sender,
  stranger,
} from "@kpng/laboratory/scenario/packet.ts";
import { type AddressPair, families, ranges } from "@kpng/laboratory/scenario/places.ts";
import type { Settings } from "@kpng/laboratory/scenario/scenario.ts";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";

const seed = Number(process.env.KPNG_STATE_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** KPNG_STATES sets another number of states. */
const count = Number(process.env.KPNG_STATES ?? 3);
const whyNot = await whyNoKubeProxy();
const serviceNumbers = [0, 1, 2] as const;
const senders: readonly Sender[] = [pod("a"), pod("b"), n1, outside, stranger];

/**
 * Settings that a state may have, in the order of its seed: each is tested in as many states.
 *
 * Without `detectLocal: "none"`: nothing is masqueraded then, so an endpoint of another node answers clients outside
 * the cluster directly, which they do not accept. The outcome depends on the endpoint that was drawn.
 */
const settingsInTurn: readonly Settings[] = [{}, { masqueradeAll: true }, { detectLocal: "BridgeInterface" }];

/** Returns three Services without SCTP, at random; the same for the same seed. */
function randomState(stateSeed: number): State {
  const random = makeRandom(stateSeed);
  const pick = makePick(random);
  const below = makeRandomBelow(random);
  const service = (at: number): State => {
    const hosts = (["a", "b", "c", "d"] as const).filter(() => below(2) === 0);
    const endpoints = hosts.map(
      (host): EndpointOption => ({ host, is: pick("ready", "ready", "ready", "draining", "unready", "gone") }),
    );
    const isBalanced = below(4) > 0;
    const options = {
      number: 30 + at,
      ports: [{ port: 80, nodePort: 30_100 + at, targetPort: pick(8080, 8443) }],
      internal: pick("Cluster", "Cluster", "Local"),
      external: pick("Cluster", "Local"),
      ...(isBalanced ? { loadBalancerIPs: [publicAddress(30 + at)] } : {}),
      ...(below(3) === 0 ? { affinitySeconds: 600 } : {}),
      ...(isBalanced && below(3) === 0 ? { sourceRanges: [pick<AddressPair>(ranges.outside, ranges.lan)] } : {}),
    } as const;
    return named(`s${at}`, options, endpoints);
  };
  return together(...serviceNumbers.map(service));
}

/** Clients keep an endpoint at each frontend, although no endpoint is in both the local set and the other one. */
function stateWithDisjointSets(): State {
  const service = (at: number): State => {
    const ports = [{ port: 80, nodePort: 30_100 + at, targetPort: 8080 as const }];
    const options = { number: 30 + at, ports, external: "Local" as const, affinitySeconds: 600 };
    return named(`s${at}`, options, [
      { host: "a", is: "draining" },
      { host: "c", is: "ready" },
      { host: "d", is: "ready" },
    ]);
  };
  return together(...serviceNumbers.map(service));
}

/** Returns a fixed state, then the random ones. */
function chooseStates(): readonly { name: string; settings: Settings; state: State }[] {
  const seeds = Array.from({ length: count }, (_, at) => seed + at);
  const random = seeds.map((stateSeed) => ({
    name: `seed ${stateSeed}`,
    settings: settingsInTurn[stateSeed % settingsInTurn.length] ?? {},
    state: randomState(stateSeed),
  }));
  return [{ name: "disjoint sets and affinity", settings: {}, state: stateWithDisjointSets() }, ...random];
}

function withoutAffinity({ services, slices }: State): State {
  const without = services.map((service) => ({
    ...service,
    spec: { ...service.spec, sessionAffinity: "None" as const, sessionAffinityConfig: undefined },
  }));
  return { services: without, slices };
}

describeBpf(`random states, seed ${seed}`, () => {
  describeWhere("kpng-ebpf answers as kube-proxy does", whyNot, () => {
    const worlds: TwoNodes[] = [];
    const proxies: CommandProxy[] = [];

    beforeAll(async () => {
      const oracle = (world: TwoNodes) => kubeProxy(world, undefined, "nftables");
      // Of pods, too, because the outcomes with the rules alone are those of kpng-nft.
      const subject = (world: TwoNodes) => kpngEbpf(world, { args: ["--sockets", "all"] });
      for (const start of [oracle, subject]) {
        const world = await buildTwoNodes();
        worlds.push(world);
        proxies.push(await start(world));
      }
      for (const proxy of proxies) await proxy.start({}, { services: [], slices: [] });
    }, 180_000);
    afterAll(async () => {
      for (const proxy of proxies) await proxy.close();
      for (const world of worlds) await world.close();
    });

    const isSticky = (state: State, at: number): boolean => state.services[at]?.spec.sessionAffinity === "ClientIP";

    /** Returns a line for each packet, with the names of the endpoints that answered, or how it ended. */
    async function ask(world: TwoNodes, state: State): Promise<ReadonlyMap<string, string>> {
      const asks = serviceNumbers.flatMap((at) => {
        const isBalanced = state.services[at]?.spec.type === "LoadBalancer";
        const ways: readonly (readonly [Frontend, number])[] = [
          [clusterIP(`s${at}`), 80],
          [nodeAddress, 30_100 + at],
          ...(isBalanced ? ([[loadBalancerIP(`s${at}`), 80]] as const) : []),
        ];
        return ways.flatMap(([to, port]) =>
          senders.flatMap((from) =>
            families.flatMap((family) =>
              (["tcp", "udp"] as const).map(async (protocol) => {
                const answers = await world.agentOf(from).call("ask", {
                  ...{ protocol, address: addressOf(state, to, family), port },
                  ...{ from: from.kind === "outside" ? from.address[family] : undefined },
                  ...(isSticky(state, at) ? { atOnce: 1, atMost: 8 } : { atOnce: 4, atMost: 40 }),
                  ...{ wanted: 4, timeoutMs: 2_000 },
                });
                const names = answers.map((answer) => (answer.kind === "answer" ? answer.name : answer.kind));
                const said = `${family} ${protocol} ${describePacket({ from, to, port })} (s${at})`;
                return [said, [...new Set(names)].sort().join()] as const;
              }),
            ),
          ),
        );
      });
      return new Map(await Promise.all(asks));
    }

    test.each(chooseStates())("state: $name", { timeout: 300_000 }, async ({ settings, state }) => {
      const [oracle, subject] = worlds as [TwoNodes, TwoNodes];
      // Without affinity, kube-proxy shows all endpoints that a client may get; with it, each client keeps one.
      const anyEndpoint = withoutAffinity(state);
      await Promise.all(proxies.map((proxy, at) => proxy.start(settings, at === 0 ? anyEndpoint : state)));
      const [expected, found] = [await ask(oracle, anyEndpoint), await ask(subject, state)];
      const wrong = [...expected].filter(([packet, outcome]) => {
        const ours = found.get(packet) ?? "";
        return isSticky(state, Number(packet.at(-2))) ? !outcome.split(",").includes(ours) : ours !== outcome;
      });
      const lines = wrong.map(
        ([packet, outcome]) => `${packet}: kube-proxy ${outcome}, kpng-ebpf ${found.get(packet)}`,
      );
      expect(lines, JSON.stringify({ settings, state })).toEqual([]);
    });
  });
});
