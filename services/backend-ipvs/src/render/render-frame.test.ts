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
