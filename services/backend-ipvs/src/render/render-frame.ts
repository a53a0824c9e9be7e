import { hash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import type { NodePlan, PodTraffic } from "@kpng/service-plan/service-plan.ts";
import { markMatches } from "./firewall-marks.ts";
import { type ObjectNames, type SetRole, setName } from "./kernel-objects.ts";

/** The rules of one family that do not depend on Services. */
export interface Frame {
  /** Chains with their rules. */
  readonly chains: readonly FrameChain[];
  /** Jumps from the kernel's chains, in the order in which packets meet them. */
  readonly jumps: readonly FrameJump[];
  /** Digest of the rules. The first rule of the last chain contains it as a comment. *Shape:* 16 hexadecimal digits. */
  readonly digest: string;
}

interface FrameChain {
  readonly table: FrameTable;
  readonly name: string;
  /** *Shape:* `-m set --match-set KPNGIPVS-DROPPED dst,dst -j DROP`. */
  readonly rules: readonly string[];
}

/** A jump to one of our chains. */
export interface FrameJump {
  readonly table: FrameTable;
  readonly from: string;
  readonly to: string;
}

/** Tables that contain our chains, in the order in which they are passed to iptables-restore. */
const frameTables = ["mangle", "nat", "filter"] as const;

type FrameTable = (typeof frameTables)[number];

interface FrameOptions {
  readonly names: ObjectNames;
  readonly family: Family;
  readonly node: NodePlan;
  /** Bit of the packet mark that requests masquerade, 0 to 23. */
  readonly masqueradeBit: number;
  /** Whether Felix, the Calico agent, has rules on this node. */
  readonly isBesideFelix: boolean;
}

/**
 * Returns the constant iptables rules that complement IPVS. They drop, refuse, mark and masquerade packets. The rules
 * do not depend on Services, but the ipsets that they look up do. Pure.
 *
 * The order of the hooks determines where a rule must be: IPVS takes packets from other machines after filter INPUT,
 * but packets from the node itself before filter OUTPUT. So packets are dropped and get firewall marks in table mangle,
 * which comes before both.
 *
 * IPVS compares all 32 bits of a mark. To preserve other programs' bits, a packet gets a firewall mark only if it has
 * no mark, and loses it again after IPVS. A packet that already has a mark is treated as a packet from outside. Felix
 * uses marks itself: in filter INPUT it marks each packet that IPVS may take, and in filter OUTPUT it drops or accepts
 * packets from the node by their marks. On a node with Felix, there are therefore no firewall marks.
 */
export function renderFrame({ names, family, node, masqueradeBit, isBesideFelix }: FrameOptions): Frame {
  const { prefix } = names;
  const marks = markMatches(names.markRange);
  const inSet = (role: SetRole, at = "dst,dst"): string => `-m set --match-set ${setName(names, family, role)} ${at}`;
  const notIn = (role: SetRole, at = "dst,dst"): string => `-m set ! --match-set ${setName(names, family, role)} ${at}`;
  const bit = `0x${(2 ** masqueradeBit).toString(16)}`;
  const isNew = "-m conntrack --ctstate NEW";
  const onlyNew = "-m conntrack ! --ctstate NEW -j RETURN";
  const pods = podMatch(node.podTraffic);
  const withMarks = (...rules: readonly string[]): readonly string[] => (isBesideFelix ? [] : rules);
  // A packet that got a mark has a virtual server, so it skips the rules that drop packets from outside.
  const byMark = (match: string, role: "POD-MARKS" | "NODE-MARKS"): readonly string[] =>
    withMarks(
      `${match}-m mark --mark 0x0 ${inSet(role)} -j SET --map-set ${setName(names, family, role)} dst,dst --map-mark`,
      `${match}-m mark --mark ${marks.all} ${inSet(role)} -j RETURN`,
    );
  const outOfRange = `${inSet("RANGED")} ${notIn("SOURCES", "dst,dst,src")} -j DROP`;
  const dropped = `${inSet("DROPPED")} -j DROP`;
  const droppedOutside = `${pods === undefined ? "" : `${pods.negation} `}${inSet("DROP-OUTSIDE")} -j DROP`;
  const refused = `${isNew} ${inSet("REFUSED")} -j REJECT`;
  const unknown = `${isNew} ${inSet("ADDRESSES", "dst")} ${notIn("SERVERS")} -j REJECT`;
  const masquerade = "-j MASQUERADE --random-fully";
  const chain = (table: FrameTable, suffix: string, rules: readonly string[]): FrameChain => ({
    table,
    name: `${prefix}-${suffix}`,
    rules,
  });
  const chains = [
    chain("mangle", "PREROUTING", [
      onlyNew,
      outOfRange,
      ...(pods === undefined ? [] : byMark(`${pods.match} `, "POD-MARKS")),
      dropped,
      droppedOutside,
    ]),
    chain("mangle", "OUTPUT", [
      onlyNew,
      outOfRange,
      // Packets from the node itself have no incoming interface, so pods can be recognized here only by source.
      ...(pods?.isBySource === true ? byMark(`${pods.match} `, "POD-MARKS") : []),
      ...byMark("", "NODE-MARKS"),
      dropped,
    ]),
    chain("mangle", "POSTROUTING", [
      ...withMarks(
        `${isNew} -m mark --mark ${marks.masqueraded} -j MARK --set-xmark ${bit}/0xffffffff`,
        `${isNew} -m mark --mark ${marks.all} -j MARK --set-xmark 0x0/0xffffffff`,
      ),
    ]),
    chain("nat", "SERVICES", [
      ...withMarks(`-m mark --mark ${marks.all} -j RETURN`),
      `${inSet("MASQ")} -j MARK --set-xmark ${bit}/${bit}`,
      `${pods === undefined ? "" : `${pods.negation} `}${inSet("MASQ-OTHERS")} -j MARK --set-xmark ${bit}/${bit}`,
    ]),
    chain("nat", "POSTROUTING", [
      `${inSet("HAIRPIN", "src,dst")} ${masquerade}`,
      // The node's own packets have the service address as their source, unless the program has chosen another source.
      `${inSet("ADDRESSES", "src")} ${notIn("ADDRESSES", "dst")} ${masquerade}`,
      `-m mark ! --mark ${bit}/${bit} -j RETURN`,
      `-j MARK --set-xmark 0x0/${bit}`,
      masquerade,
    ]),
    chain("filter", "INPUT", [
      // This rule also applies to packets with a mark, because their virtual server may not exist yet.
      refused,
      ...withMarks(`-m mark --mark ${marks.all} -j ACCEPT`),
      unknown,
      // Accepted because without IPVS these packets would be forwarded, and the node's INPUT firewall rules would not
      // apply to them.
      `${inSet("SERVERS")} -j ACCEPT`,
      `-p tcp ${inSet("HEALTH", "dst")} -j ACCEPT`,
    ]),
    chain("filter", "OUTPUT", [refused, unknown]),
    chain("filter", "FORWARD", [
      "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
      // A packet is forwarded to a service address if this address is not on our interface yet, or if another program
      // has deleted it there. If it were accepted, connection tracking would remember it, and IPVS would never
      // translate the connection. A dropped packet is sent again.
      `${isNew} ${inSet("ADDRESSES", "dst")} -j DROP`,
    ]),
  ];
  const jumps = frameJumps(names);
  const digest = hash("sha256", JSON.stringify([chains, jumps])).slice(0, 16);
  return { chains, jumps, digest };
}

/** Returns the jumps of each frame. */
export function frameJumps({ prefix }: ObjectNames): readonly FrameJump[] {
  const jump = (table: FrameTable, from: string, suffix = from): FrameJump => ({
    table,
    from,
    to: `${prefix}-${suffix}`,
  });
  return [
    ...["PREROUTING", "OUTPUT", "POSTROUTING"].map((from) => jump("mangle", from)),
    jump("nat", "PREROUTING", "SERVICES"),
    jump("nat", "OUTPUT", "SERVICES"),
    jump("nat", "POSTROUTING"),
    ...["INPUT", "OUTPUT", "FORWARD"].map((from) => jump("filter", from)),
  ];
}

/** Returns the matches for packets from pods and for all other packets; undefined if pods cannot be recognized. */
function podMatch(traffic: PodTraffic | undefined) {
  if (traffic === undefined) return undefined;
  const match =
    traffic.kind === "source"
      ? `-s ${traffic.cidr}`
      : `-i ${traffic.kind === "interface" ? traffic.name : `${traffic.prefix}+`}`;
  return { match, negation: `! ${match}`, isBySource: traffic.kind === "source" };
}

/** Returns the comment that records which rules are installed. */
export function digestComment({ digest }: Pick<Frame, "digest">): string {
  return `kpng-ipvs ${digest}`;
}

/**
 * Returns the rules as input for `iptables-restore --noflush`, with the jumps that are missing according to
 * `isPresent`. `felixRule` is the position of Felix's rule in filter INPUT, or 0. Our jump must come after that rule:
 * there Felix records the origin of a packet, which it needs to apply network policies after IPVS, so packets that our
 * rules accepted first would escape the policies.
 */
export function frameLines(
  frame: Frame,
  isPresent: (jump: FrameJump) => boolean,
  felixRule: number,
): readonly string[] {
  const record = `-m comment --comment "${digestComment(frame)}"`;
  const last = frame.chains.at(-1);
  return frameTables.flatMap((table) => {
    const chains = frame.chains.filter((one) => one.table === table);
    const missing = frame.jumps.filter((jump) => jump.table === table && !isPresent(jump));
    return [
      `*${table}`,
      ...chains.map(({ name }) => `:${name} - [0:0]`),
      ...chains.flatMap((one) => [
        ...(one === last ? [`-A ${one.name} ${record}`] : []),
        ...one.rules.map((rule) => `-A ${one.name} ${rule}`),
      ]),
      ...missing.map(({ from, to }) => {
        const place = table === "filter" && from === "INPUT" ? `${from} ${felixRule + 1}` : from;
        return `-I ${place} -m comment --comment "kpng ipvs" -j ${to}`;
      }),
      "COMMIT",
    ];
  });
}
