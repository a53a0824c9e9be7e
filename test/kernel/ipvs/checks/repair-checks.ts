import { publicAddress, web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, loadBalancerIP, pod } from "@kpng/laboratory/scenario/packet.ts";
import { hosts } from "@kpng/laboratory/scenario/places.ts";
import { both, type Checks, expectTrue, options } from "./check.ts";

/** Repairs of what other programs did, and what of theirs stays. */
export const repairChecks: Checks = {
  "a second sync changes nothing, and a restart changes nothing": async (_world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    const again = await node.ask({ kind: "apply", state: both });
    const checked = await node.ask({ kind: "repair" });
    const restarted = await node.ask({ kind: "start", settings: {}, state: both });
    return [...again.changes, ...checked.changes, ...restarted.changes];
  },

  "what another program deletes is repaired, and its own virtual servers stay": async (_world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    const damages = [
      "ipvsadm -d -u '[fd00:10:96::11]:80' -r '[fd00:10:1:2::13]:8080'",
      "ip link delete kube-ipvs0",
      "iptables -t mangle -F KPNGIPVS-OUTPUT",
      "ip6tables -D INPUT -m comment --comment 'kpng ipvs' -j KPNGIPVS-INPUT",
    ];
    await node.ask({ kind: "shell", command: "ipvsadm -A -t 203.0.113.9:80 -s lc" });
    const wrong: string[] = [];
    for (const command of damages) {
      await node.ask({ kind: "shell", command });
      const { changes } = await node.ask({ kind: "repair" });
      if (changes.length === 0) wrong.push(`not noticed: ${command}`);
      const after = await node.ask({ kind: "repair" });
      wrong.push(...after.changes.map((change) => `after ${command}, the second repair changes ${change}`));
    }
    await node.ask({ kind: "apply", state: web(options, []) });
    const { output } = await node.ask({ kind: "shell", command: "ipvsadm -S -n" });
    await node.ask({ kind: "shell", command: "ipvsadm -D -t 203.0.113.9:80" });
    return [...wrong, ...expectTrue(output.includes("203.0.113.9:80 -s lc"), "the foreign virtual server is gone")];
  },

  "a mark of another program is the same after IPVS": async (world, node) => {
    const shell = async (command: string): Promise<string> => (await node.ask({ kind: "shell", command })).output;
    const rules = (verb: "A" | "D") => `set -e
iptables -t mangle -${verb === "A" ? "I" : "D"} PREROUTING -s ${hosts.a.v4} -d ${publicAddress(10).v4} -j MARK --set-xmark 0x8000300/0xffffffff
iptables -t mangle -${verb} POSTROUTING -p tcp --syn --dport 8080 -m mark --mark 0x8000300
`;
    const state = web({ ...options, external: "Local" }, ["b", "c"]);
    await node.ask({ kind: "start", settings: {}, state });
    await shell(rules("A"));
    const address = addressOf(state, loadBalancerIP("web"), "v4");
    const answer = await world.agentOf(pod("a")).askOnce({ protocol: "tcp", address, port: 80, timeoutMs: 5_000 });
    const listed = await shell("iptables -t mangle -nvxL POSTROUTING | grep 0x8000300");
    await shell(rules("D"));
    return [
      ...expectTrue(answer.kind === "answer" && answer.name === "b", `a packet with a mark: ${JSON.stringify(answer)}`),
      ...expectTrue(/^ *[1-9]/.test(listed), `the mark is lost: ${listed}`),
    ];
  },
};
