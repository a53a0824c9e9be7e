import { afterAll, beforeAll, expect, test } from "vitest";
import { checkRules } from "../conformance/check-rules.ts";
import { named, publicAddress, together, web } from "../scenario/build.ts";
import { clusterIP, loadBalancerIP, nodeAddress, outside, pod } from "../scenario/packet.ts";
import type { Scenario } from "../scenario/scenario.ts";
import { scenarios, scenariosOf, settingsKey } from "../scenario/scenarios.ts";
import { type KpngProxy, kpngIptables } from "./backend/kpng-proxy.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import type { RunningBackend } from "./backends.ts";
import { checkPackets } from "./check-packets.ts";
import { describeVariants } from "./describe-packets.ts";
import { serveSctp, whyNoSctp } from "./laboratory/sctp.ts";
import { buildTwoNodes, NodeFirewall, type TwoNodes, targetPorts } from "./laboratory/two-nodes.ts";

describeVariants(
  "kube-proxy and kpng-iptables on one node, with the same Services",
  await whyNoKubeProxy(),
  (variant) => {
    let world: TwoNodes;
    let both: readonly RunningBackend[];
    const firewall = new NodeFirewall();
    beforeAll(async () => {
      world = await buildTwoNodes(variant);
      if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
      both = await Promise.all([kubeProxy(world, 20_000), kpngIptables(world, { firstMarkerPort: 30_000 })]);
      await Promise.all(both.map((backend) => backend.start({}, scenarios[0]?.state ?? { services: [], slices: [] })));
    });
    afterAll(async () => {
      for (const backend of both ?? []) await backend.close();
      await world?.close();
    });

    // The first proxy whose rules see a connection selects its endpoint, which must also suit the rules of the other
    // one.
    for (const scenario of scenariosOf("kube-proxy").filter((each) => settingsKey(each) === settingsKey({}))) {
      test(scenario.name, async () => {
        await firewall.put(world, scenario.firewall);
        await Promise.all(both.map((backend) => backend.apply(scenario.state)));
        const rules = await world.rules();
        expect(rules.v4).toContain("-j KUBE-SERVICES");
        expect(rules.v4).toContain("-j KPNG-SERVICES");
        const traced = checkRules(rules, scenario, "iptables");
        expect({ wrong: await checkPackets(world, scenario, "iptables"), traced }).toEqual({ wrong: [], traced: [] });
      });
    }
  },
);

const edge = { "service.kubernetes.io/service-proxy-name": "edge" };
const ports = [{ port: 80, nodePort: 30_080 }];
const ofDefault = web({ ports, loadBalancerIPs: [publicAddress(10)] }, ["a", "c"]);
const ofEdge = named(
  "edge",
  { number: 12, ports: [{ port: 80, nodePort: 30_081 }], loadBalancerIPs: [publicAddress(12)], labels: edge },
  ["b", "d"],
);

/** Returns the scenario with the Services of the running instances. */
function instances(isDefault: boolean, isEdge: boolean): Scenario {
  const way = (
    name: string,
    nodePort: number,
    goesTo: readonly ["a", "c"] | readonly ["b", "d"],
    isServed: boolean,
  ) => {
    const outcome = isServed ? { goesTo } : ({ verdict: "untouched" } as const);
    return [
      { from: pod("a"), to: clusterIP(name), port: 80, ...outcome },
      { from: outside, to: nodeAddress, port: nodePort, ...outcome },
      { from: outside, to: loadBalancerIP(name), port: 80, ...outcome },
    ];
  };
  return {
    name: "",
    state: together(ofDefault, ofEdge),
    packets: [...way("web", 30_080, ["a", "c"], isDefault), ...way("edge", 30_081, ["b", "d"], isEdge)],
  };
}

describeVariants("two instances of kpng-iptables on one node, one with --service-proxy-name", undefined, (variant) => {
  let world: TwoNodes;
  let main: KpngProxy;
  let other: KpngProxy;
  beforeAll(async () => {
    world = await buildTwoNodes(variant);
    [main, other] = await Promise.all([
      kpngIptables(world, { firstMarkerPort: 20_000 }),
      kpngIptables(world, { name: "edge", serviceProxyName: "edge", firstMarkerPort: 30_000 }),
    ]);
  });
  afterAll(async () => {
    await main?.close();
    await other?.close();
    await world?.close();
  });

  async function expectServed(scenario: Scenario): Promise<void> {
    const traced = checkRules(await world.rules(), scenario, "iptables");
    expect({ wrong: await checkPackets(world, scenario, "iptables"), traced }).toEqual({ wrong: [], traced: [] });
  }

  test("each serves its own Services, and its removal does not affect the other", async () => {
    const { state } = instances(true, true);
    await main.start({}, state);
    await expectServed(instances(true, false));
    await other.start({}, state);
    await expectServed(instances(true, true));
    await main.stop();
    await main.cleanUp();
    await expectServed(instances(false, true));
    await main.start({}, state);
    await other.stop();
    await other.cleanUp();
    await expectServed(instances(true, false));
  }, 120_000);
});
