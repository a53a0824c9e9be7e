import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { type State, web } from "@kpng/laboratory/scenario/build.ts";
import {
  addressOf,
  clusterIP,
  loadBalancerIP,
  n1,
  nodeAddress,
  outside,
  type Packet,
  pod,
} from "@kpng/laboratory/scenario/packet.ts";
import { bridgeName, hosts } from "@kpng/laboratory/scenario/places.ts";
import { type Checks, options } from "./check.ts";

const accept = "0x10000/0x10000";
const fromWorkload = "0x80000/0x80000";
/** Bits for accept, pass and scratch. */
const ownBits = "0x1b0000";
/** Bits in which Felix notes from where a packet has come that IPVS may take. */
const endpointMask = "0xffe00000";
const endpoint = `0x400000/${endpointMask}`;
const otherEndpoint = `0x200000/${endpointMask}`;

/**
 * Returns shell commands that write the rules and the ipset of Felix, the agent of Calico, for one workload endpoint:
 * the bridge of n1's pods. Its ingress policy lets only `allowed` in; its egress policy lets everything out.
 *
 * As Felix does, they look for the interface `kube-ipvs0` to decide whether ingress policies apply to connections
 * through IPVS, and take addresses of all other interfaces for the node's own. *Source:* Calico,
 * `felix/rules/static.go`, `dispatch.go` and `endpoints.go`, `felix/dataplane/driver.go`, with the default mask of
 * marks, 0xffff0000, of which `felix/markbits` gives the lowest five bits to accept, pass, drop and scratch. The chains
 * of table raw, which the guest's kernel lacks, are the first ones of table mangle.
 */
function felixRules(allowed: string): string {
  const ofIpvs = (...rules: readonly string[]): string => rules.map((rule) => `\${ipvs}${rule}`).join("\n");
  return `set -e
ipvs='#'; if ip link show kube-ipvs0 > /dev/null 2>&1; then ipvs=; fi
ipset -exist create cali40this-host hash:ip
ipset flush cali40this-host
ip -o -4 address show | awk '$2 != "kube-ipvs0" { sub("/.*", "", $4); print "-exist add cali40this-host " $4 }' | ipset restore
cat << END | grep -v '^#' | iptables-restore --noflush --wait 5
*mangle
:cali-raw-PREROUTING - [0:0]
:cali-raw-OUTPUT - [0:0]
:cali-PREROUTING - [0:0]
:cali-POSTROUTING - [0:0]
-A cali-raw-PREROUTING -j MARK --set-xmark 0x0/${ownBits}
-A cali-raw-PREROUTING -i ${bridgeName} -j MARK --set-xmark ${fromWorkload}
-A cali-raw-OUTPUT -j MARK --set-xmark 0x0/${ownBits}
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark ${accept} -j ACCEPT
-A cali-POSTROUTING -m mark --mark ${accept} -j RETURN
${ofIpvs(`-A cali-POSTROUTING -m mark ! --mark 0x0/${endpointMask} -j RETURN`)}
-A cali-POSTROUTING -j MARK --set-xmark 0x0/${ownBits}
-I PREROUTING -j cali-PREROUTING
-I PREROUTING -j cali-raw-PREROUTING
-I OUTPUT -j cali-raw-OUTPUT
-I POSTROUTING -j cali-POSTROUTING
COMMIT
*filter
:cali-INPUT - [0:0]
:cali-OUTPUT - [0:0]
:cali-FORWARD - [0:0]
:cali-forward-check - [0:0]
:cali-forward-endpoint-mark - [0:0]
:cali-set-endpoint-mark - [0:0]
:cali-sm-wl - [0:0]
:cali-from-endpoint-mark - [0:0]
:cali-to-wl-dispatch - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-tw-wl - [0:0]
:cali-fw-wl - [0:0]
:cali-wl-to-host - [0:0]
${ofIpvs(
  `-A cali-INPUT -j MARK --set-xmark 0x0/${endpointMask}`,
  "-A cali-INPUT -j cali-forward-check",
  `-A cali-INPUT -m mark ! --mark 0x0/${endpointMask} -j RETURN`,
)}
-A cali-INPUT -i ${bridgeName} -g cali-wl-to-host
-A cali-INPUT -m mark --mark ${accept} -j ACCEPT
-A cali-INPUT -j MARK --set-xmark 0x0/${ownBits}
-A cali-wl-to-host -j cali-from-wl-dispatch
-A cali-wl-to-host -j ACCEPT
-A cali-forward-check -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN
-A cali-forward-check -p tcp --dport 30000:32767 -m set --match-set cali40this-host dst -g cali-set-endpoint-mark
-A cali-forward-check -p udp --dport 30000:32767 -m set --match-set cali40this-host dst -g cali-set-endpoint-mark
-A cali-forward-check -m set ! --match-set cali40this-host dst -j cali-set-endpoint-mark
-A cali-set-endpoint-mark -i ${bridgeName} -g cali-sm-wl
-A cali-set-endpoint-mark -j MARK --set-xmark ${otherEndpoint}
-A cali-sm-wl -j MARK --set-xmark ${endpoint}
-A cali-from-endpoint-mark -m mark --mark ${endpoint} -g cali-fw-wl
-A cali-from-endpoint-mark -j DROP
-A cali-OUTPUT -m mark --mark ${accept} -j ACCEPT
${ofIpvs(`-A cali-OUTPUT -m mark ! --mark 0x0/${endpointMask} -g cali-forward-endpoint-mark`)}
-A cali-OUTPUT -o ${bridgeName} -j RETURN
-A cali-OUTPUT -j MARK --set-xmark 0x0/${ownBits}
-A cali-forward-endpoint-mark -m mark ! --mark ${otherEndpoint} -j cali-from-endpoint-mark
-A cali-forward-endpoint-mark -o ${bridgeName} -j cali-to-wl-dispatch
-A cali-forward-endpoint-mark -j MARK --set-xmark 0x0/${endpointMask}
-A cali-forward-endpoint-mark -m mark --mark ${accept} -j ACCEPT
-A cali-FORWARD -j MARK --set-xmark 0x0/0x1a0000
-A cali-FORWARD -i ${bridgeName} -j cali-from-wl-dispatch
-A cali-FORWARD -o ${bridgeName} -j cali-to-wl-dispatch
-A cali-from-wl-dispatch -i ${bridgeName} -g cali-fw-wl
-A cali-to-wl-dispatch -o ${bridgeName} -g cali-tw-wl
-A cali-to-wl-dispatch -j DROP
-A cali-fw-wl -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-wl -j MARK --set-xmark 0x0/0x30000
-A cali-fw-wl -j MARK --set-xmark ${accept}
-A cali-tw-wl -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-tw-wl -j MARK --set-xmark 0x0/0x30000
-A cali-tw-wl -s ${allowed} -j MARK --set-xmark ${accept}
-A cali-tw-wl -m mark --mark ${accept} -j RETURN
-A cali-tw-wl -j DROP
-I INPUT -j cali-INPUT
-I OUTPUT -j cali-OUTPUT
-I FORWARD -j cali-FORWARD
-A FORWARD -m mark --mark ${accept} -j ACCEPT
COMMIT
END
`;
}

/** Shell commands that remove what `felixRules` wrote. */
const felixRemoval = `iptables -D FORWARD -m mark --mark ${accept} -j ACCEPT
for table in mangle filter; do
  jumps=$(iptables-save -t $table | grep -E '^-A [A-Z]+ -j cali-' | sed 's/^-A/-D/')
  chains=$(iptables-save -t $table | sed -n 's/^:\\(cali-[^ ]*\\) .*/\\1/p')
  { echo "*$table"; echo "$jumps"
    for chain in $chains; do echo "-F $chain"; done
    for chain in $chains; do echo "-X $chain"; done
    echo COMMIT; } | iptables-restore --noflush --wait 5
done
ipset destroy cali40this-host
`;

type Question = Pick<Packet, "from" | "to" | "port">;

/** Returns who answers each packet of IPv4, or what happens to it. *Shape:* `b,refused,silent`. */
async function fatesOf(world: TwoNodes, state: State, packets: readonly Question[]): Promise<string> {
  const fates: string[] = [];
  for (const { from, to, port } of packets) {
    const target = { protocol: "tcp", address: addressOf(state, to, "v4"), port, timeoutMs: 5_000 } as const;
    const answer = await world.agentOf(from).askOnce(target);
    fates.push(answer.kind === "answer" ? answer.name : answer.kind);
  }
  return fates.join();
}

/** Checks beside the rules of Felix. */
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
    const shell = (command: string) => node.ask({ kind: "shell", command });
    const removeJump = "iptables -D INPUT -m comment --comment 'kpng ipvs' -j KPNGIPVS-INPUT";
    const steps: readonly (readonly [what: string, expected: string, step: () => Promise<unknown>])[] = [
      ["without Felix", "b,b,b", () => node.ask({ kind: "start", settings: {}, state })],
      ["Felix comes later and denies", "silent,silent,silent", () => shell(felixRules("203.0.113.1"))],
      [
        "Felix was there before",
        "silent,silent,silent",
        () => shell(removeJump).then(() => node.ask({ kind: "repair" })),
      ],
      ["Felix allows pod a", "b,silent,silent", () => shell(`${felixRemoval}${felixRules(hosts.a.v4)}`)],
      ["Felix has gone", "b,b,b", () => shell(felixRemoval).then(() => node.ask({ kind: "repair" }))],
    ];
    const wrong: string[] = [];
    for (const [what, expected, step] of steps) {
      await step();
      const fates = await fatesOf(world, state, packets);
      if (fates !== expected) wrong.push(`${what}: ${fates}, and not ${expected}`);
    }
    return wrong;
  },

  "beside Felix, pods and the node reach external addresses of policy Local": async (world, node) => {
    const wrong: string[] = [];
    await node.ask({ kind: "shell", command: felixRules("0.0.0.0/0") });
    for (const [endpoints, expected] of [
      [["b", "c"], "b,b,b"],
      [["c"], "c,c,silent"],
    ] as const) {
      const state = web({ ...options, external: "Local" }, endpoints);
      await node.ask({ kind: "start", settings: {}, state });
      const packets = [pod("a"), n1, outside].map((from) => ({ from, to: loadBalancerIP("web"), port: 80 }));
      const fates = await fatesOf(world, state, packets);
      if (fates !== expected) wrong.push(`${fates}, and not ${expected}`);
    }
    await node.ask({ kind: "shell", command: felixRemoval });
    return wrong;
  },
};
