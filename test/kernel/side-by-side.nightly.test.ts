import { afterAll, beforeAll, expect, test } from "vitest";
import { named, publicAddress, together, web } from "../scenario/build.ts";
import { clusterIP, loadBalancerIP, nodeAddress, outside, pod } from "../scenario/packet.ts";
import type { Scenario } from "../scenario/scenario.ts";
import { type KpngProxy, kpngIptables } from "./backend/kpng-proxy.ts";
import { checkPackets } from "./check-packets.ts";
import { describePackets } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

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

describePackets("two instances of kpng-iptables on one node, one with --service-proxy-name", () => {
  let world: TwoNodes;
  let main: KpngProxy;
  let other: KpngProxy;
  beforeAll(async () => {
    world = await buildTwoNodes();
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

  const expectServed = async (scenario: Scenario): Promise<void> =>
    expect(await checkPackets(world, scenario, "iptables")).toEqual([]);

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
