import { publicAddress, web } from "../../../scenario/build.ts";
import type { State } from "../../../scenario/manifest.ts";
import {
  addressOf,
  clusterIP,
  loadBalancerIP,
  n1,
  nodeAddress,
  outside,
  type Packet,
  pod,
} from "../../../scenario/packet.ts";
import { hosts } from "../../../scenario/places.ts";
import type { TwoNodes } from "../../laboratory/two-nodes.ts";
import { felixRemoval, felixRules } from "../felix.ts";
import type { NodeUnderTest } from "../node-under-test.ts";
import { type Checks, options } from "./check.ts";

const local = web({ ...options, external: "Local" }, ["b", "c"]);
const elsewhere = web({ ...options, external: "Local" }, ["c"]);

/** Returns who answers a packet of IPv4, or what happens to it. *Shape:* `b`, `refused`, `silent`. */
async function fateOf(world: TwoNodes, state: State, { from, to, port }: Pick<Packet, "from" | "to" | "port">) {
  const address = addressOf(state, to, "v4");
  const answer = await world.agentOf(from).askOnce({ protocol: "tcp", address, port, timeoutMs: 5_000 });
  return answer.kind === "answer" ? answer.name : answer.kind;
}

async function shell(node: NodeUnderTest, command: string): Promise<string> {
  return (await node.ask({ kind: "shell", command })).output;
}

/** Checks with the rules of Felix, the agent of Calico, and with marks of other programs. */
export const felixChecks: Checks = {
  "Felix' ingress policy applies to connections through IPVS, whichever of both writes its rules first": async (
    world,
    node,
  ) => {
    const state = web(options, ["b"]);
    const packets = [
      { from: pod("a"), to: clusterIP("web"), port: 80 },
      { from: outside, to: loadBalancerIP("web"), port: 80 },
      { from: outside, to: nodeAddress, port: 30_080 },
    ] as const;
    const wrong: string[] = [];
    const expectFates = async (what: string, expected: string): Promise<void> => {
      const fates: string[] = [];
      for (const packet of packets) fates.push(await fateOf(world, state, packet));
      if (fates.join() !== expected) wrong.push(`${what}: ${fates}, and not ${expected}`);
    };
    await node.ask({ kind: "start", settings: {}, state });
    await expectFates("without Felix", "b,b,b");
    await shell(node, felixRules("203.0.113.1"));
    await expectFates("Felix comes later and denies", "silent,silent,silent");
    await shell(node, "iptables -D INPUT -m comment --comment 'kpng ipvs' -j KPNGIPVS-INPUT");
    await node.ask({ kind: "repair" });
    await expectFates("Felix was there before", "silent,silent,silent");
    await shell(node, `${felixRemoval}${felixRules(hosts.a.v4)}`);
    await expectFates("Felix allows pod a", "b,silent,silent");
    await shell(node, felixRemoval);
    await node.ask({ kind: "repair" });
    await expectFates("Felix has gone", "b,b,b");
    return wrong;
  },

  "beside Felix, pods and the node reach external addresses of policy Local": async (world, node) => {
    const wrong: string[] = [];
    await shell(node, felixRules("0.0.0.0/0"));
    for (const [state, expected] of [
      [local, "b,b,b"],
      [elsewhere, "c,c,silent"],
    ] as const) {
      await node.ask({ kind: "start", settings: {}, state });
      const fates: string[] = [];
      for (const from of [pod("a"), n1, outside])
        fates.push(await fateOf(world, state, { from, to: loadBalancerIP("web"), port: 80 }));
      if (fates.join() !== expected) wrong.push(`${fates}, and not ${expected}`);
    }
    await shell(node, felixRemoval);
    return wrong;
  },

  "a mark of another program is the same after IPVS": async (world, node) => {
    const rules = (verb: "A" | "D") => `set -e
iptables -t mangle -${verb === "A" ? "I" : "D"} PREROUTING -s ${hosts.a.v4} -d ${publicAddress(10).v4} -j MARK --set-xmark 0x8000300/0xffffffff
iptables -t mangle -${verb} POSTROUTING -p tcp --syn --dport 8080 -m mark --mark 0x8000300
`;
    await node.ask({ kind: "start", settings: {}, state: local });
    await shell(node, rules("A"));
    const answer = await fateOf(world, local, { from: pod("a"), to: loadBalancerIP("web"), port: 80 });
    const listed = await shell(node, "iptables -t mangle -nvxL POSTROUTING | grep 0x8000300");
    await shell(node, rules("D"));
    return [
      ...(answer === "b" ? [] : [`a packet with a mark is answered by ${answer}`]),
      ...(/^ *[1-9]/.test(listed) ? [] : [`the mark is lost: ${listed}`]),
    ];
  },
};
