import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { hasJump, looksLike, parseFrame } from "../commit/node-frame.ts";
import { objectNames } from "./kernel-objects.ts";
import { type Frame, frameText, renderFrame } from "./render-frame.ts";

const names = objectNames("");
const frameOf = (node = nodePlan(), isBesideFelix = false): Frame =>
  renderFrame({ names, family: "v4", node, masqueradeBit: 14, isBesideFelix });
const rulesOf = (frame: Frame, name: string): readonly string[] =>
  frame.chains.filter((chain) => `${chain.table} ${chain.name}` === name).flatMap(({ rules }) => rules);

test("pods are recognized by source in both directions, and by interface only where packets arrive", () => {
  const byInterface = frameOf(nodePlan({ podTraffic: { kind: "interfacePrefix", prefix: "veth" } }));
  const pods = (frame: Frame, chain: string) =>
    rulesOf(frame, `mangle KPNGIPVS-${chain}`).filter((rule) => rule.includes("POD-MARKS")).length;
  expect([pods(frameOf(), "PREROUTING"), pods(frameOf(), "OUTPUT")]).toEqual([2, 2]);
  expect([pods(byInterface, "PREROUTING"), pods(byInterface, "OUTPUT")]).toEqual([2, 0]);
  expect(rulesOf(byInterface, "nat KPNGIPVS-SERVICES")).toContain(
    "! -i veth+ -m set --match-set KPNGIPVS-MASQ-OTHERS dst,dst -j MARK --set-xmark 0x4000/0x4000",
  );
  expect(pods(frameOf(nodePlan({ podTraffic: undefined })), "PREROUTING")).toBe(0);
});

/** Returns the rules of all chains, without prefix and the words that most rules share. */
function shortRules(frame: Frame): readonly string[] {
  return frame.chains.flatMap(({ table, name, rules }) =>
    rules.map((rule) =>
      `${table} ${name}: ${rule}`
        .replaceAll("KPNGIPVS-", "")
        .replaceAll("-m conntrack --ctstate", "ctstate")
        .replaceAll("-m conntrack ! --ctstate", "ctstate not")
        .replaceAll("-m set --match-set", "in")
        .replaceAll("-m set ! --match-set", "not in")
        .replaceAll("-j MASQUERADE --random-fully", "MASQUERADE")
        .replaceAll(/-m mark( !)? --mark /g, "mark$1 ")
        .replaceAll("-j ", ""),
    ),
  );
}

test("the constant rules drop, mark, masquerade, refuse and accept packets of Services", () => {
  expect(shortRules(frameOf())).toEqual([
    "mangle PREROUTING: ctstate not NEW RETURN",
    "mangle PREROUTING: in RANGED dst,dst not in SOURCES dst,dst,src DROP",
    "mangle PREROUTING: -s 10.0.0.0/8 mark 0x0 in POD-MARKS dst,dst SET --map-set POD-MARKS dst,dst --map-mark",
    "mangle PREROUTING: -s 10.0.0.0/8 mark 0x6b000000/0xff000000 in POD-MARKS dst,dst RETURN",
    "mangle PREROUTING: in DROPPED dst,dst DROP",
    "mangle PREROUTING: ! -s 10.0.0.0/8 in DROP-OUTSIDE dst,dst DROP",
    "mangle OUTPUT: ctstate not NEW RETURN",
    "mangle OUTPUT: in RANGED dst,dst not in SOURCES dst,dst,src DROP",
    "mangle OUTPUT: -s 10.0.0.0/8 mark 0x0 in POD-MARKS dst,dst SET --map-set POD-MARKS dst,dst --map-mark",
    "mangle OUTPUT: -s 10.0.0.0/8 mark 0x6b000000/0xff000000 in POD-MARKS dst,dst RETURN",
    "mangle OUTPUT: mark 0x0 in NODE-MARKS dst,dst SET --map-set NODE-MARKS dst,dst --map-mark",
    "mangle OUTPUT: mark 0x6b000000/0xff000000 in NODE-MARKS dst,dst RETURN",
    "mangle OUTPUT: in DROPPED dst,dst DROP",
    "mangle POSTROUTING: ctstate NEW mark 0x6b800000/0xff800000 MARK --set-xmark 0x4000/0xffffffff",
    "mangle POSTROUTING: ctstate NEW mark 0x6b000000/0xff000000 MARK --set-xmark 0x0/0xffffffff",
    "nat SERVICES: mark 0x6b000000/0xff000000 RETURN",
    "nat SERVICES: in MASQ dst,dst MARK --set-xmark 0x4000/0x4000",
    "nat SERVICES: ! -s 10.0.0.0/8 in MASQ-OTHERS dst,dst MARK --set-xmark 0x4000/0x4000",
    "nat POSTROUTING: in HAIRPIN src,dst MASQUERADE",
    "nat POSTROUTING: in ADDRESSES src not in ADDRESSES dst MASQUERADE",
    "nat POSTROUTING: mark ! 0x4000/0x4000 RETURN",
    "nat POSTROUTING: MARK --set-xmark 0x0/0x4000",
    "nat POSTROUTING: MASQUERADE",
    "filter INPUT: ctstate NEW in REFUSED dst,dst REJECT",
    "filter INPUT: mark 0x6b000000/0xff000000 ACCEPT",
    "filter INPUT: ctstate NEW in ADDRESSES dst not in SERVERS dst,dst REJECT",
    "filter INPUT: in SERVERS dst,dst ACCEPT",
    "filter INPUT: -p tcp in HEALTH dst ACCEPT",
    "filter OUTPUT: ctstate NEW in REFUSED dst,dst REJECT",
    "filter OUTPUT: ctstate NEW in ADDRESSES dst not in SERVERS dst,dst REJECT",
    "filter FORWARD: ctstate RELATED,ESTABLISHED ACCEPT",
    "filter FORWARD: ctstate NEW in ADDRESSES dst DROP",
  ]);
  expect(frameOf().jumps.map(({ table, from, to }) => `${table} ${from} ${to}`)).toEqual([
    "mangle PREROUTING KPNGIPVS-PREROUTING",
    "mangle OUTPUT KPNGIPVS-OUTPUT",
    "mangle POSTROUTING KPNGIPVS-POSTROUTING",
    "nat PREROUTING KPNGIPVS-SERVICES",
    "nat OUTPUT KPNGIPVS-SERVICES",
    "nat POSTROUTING KPNGIPVS-POSTROUTING",
    "filter INPUT KPNGIPVS-INPUT",
    "filter OUTPUT KPNGIPVS-OUTPUT",
    "filter FORWARD KPNGIPVS-FORWARD",
  ]);
});

test("rules that iptables-save prints are recognized by record, jumps and number", () => {
  const frame = frameOf();
  // iptables-save prints rules in the form in which they were given, -I as -A.
  const printed = parseFrame(frameText(frame, () => false, 0).replaceAll(/^-I (\S+)(?: \d+)? /gm, "-A $1 "), names);
  expect(looksLike(printed, frame)).toBe(true);
  expect(frame.jumps.every((jump) => hasJump(printed, jump))).toBe(true);
  expect(looksLike({ rules: printed.rules.slice(1) }, frame)).toBe(false);
  expect(looksLike(printed, frameOf(nodePlan({ podTraffic: undefined })))).toBe(false);
  expect(parseFrame("*filter\n-A INPUT -j ACCEPT\n-A KPNG-SVC -j ACCEPT\n-A INPUT -j KPNG-X\n", names).rules).toEqual(
    [],
  );
});

test("a jump that is installed is not inserted again", () => {
  const frame = frameOf();
  const text = frameText(frame, ({ from }) => from !== "FORWARD", 0);
  expect(text.match(/^-I .*/gm)).toEqual(['-I FORWARD -m comment --comment "kpng ipvs" -j KPNGIPVS-FORWARD']);
});

test("the jump from INPUT comes after Felix' rule, so that Felix sees packets before they are accepted", () => {
  const text =
    "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -m comment --comment x -j cali-INPUT\nCOMMIT\n";
  const { felixRule } = parseFrame(text, names);
  expect(felixRule).toBe(2);
  expect(frameText(frameOf(), ({ from, table }) => table !== "filter" || from !== "INPUT", felixRule)).toContain(
    '\n-I INPUT 3 -m comment --comment "kpng ipvs" -j KPNGIPVS-INPUT\n',
  );
  expect(parseFrame(text.replace("*filter", "*mangle"), names).felixRule).toBe(0);
});

test("beside Felix, no rule looks at or sets a bit of a mark except that of masquerade", () => {
  const rules = shortRules(frameOf(nodePlan(), true)).filter((rule) => / mark |MARK/.test(rule));
  expect(rules).toEqual([
    "nat SERVICES: in MASQ dst,dst MARK --set-xmark 0x4000/0x4000",
    "nat SERVICES: ! -s 10.0.0.0/8 in MASQ-OTHERS dst,dst MARK --set-xmark 0x4000/0x4000",
    "nat POSTROUTING: mark ! 0x4000/0x4000 RETURN",
    "nat POSTROUTING: MARK --set-xmark 0x0/0x4000",
  ]);
});
