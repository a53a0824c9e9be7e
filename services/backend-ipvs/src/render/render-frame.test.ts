import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { hasJump, looksLike, parseFrame } from "../read/installed-frame.ts";
import { objectNames } from "./object-names.ts";
import { type Frame, frameText, renderFrame } from "./render-frame.ts";

const names = objectNames("");
const frameOf = (node = nodePlan()): Frame => renderFrame({ names, family: "v4", node, masqueradeBit: 14 });
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

test("source ranges come before the marks of policy Local, and both before the drop", () => {
  const rules = rulesOf(frameOf(), "mangle KPNGIPVS-PREROUTING");
  const at = (text: string) => rules.findIndex((rule) => rule.includes(text));
  expect(at("RANGED")).toBeGreaterThan(at("! --ctstate NEW"));
  expect(at("POD-MARKS")).toBeGreaterThan(at("RANGED"));
  expect(at("DROPPED")).toBeGreaterThan(at("POD-MARKS"));
});

test("packets to a service address are never forwarded", () => {
  expect(rulesOf(frameOf(), "filter KPNGIPVS-FORWARD").at(-1)).toBe(
    "-m conntrack --ctstate NEW -m set --match-set KPNGIPVS-ADDRESSES dst -j DROP",
  );
});

test("rules that iptables-save prints are recognized by record, jumps and number", () => {
  const frame = frameOf();
  // iptables-save prints rules in the form in which they were given, -I as -A.
  const printed = parseFrame(frameText(frame, () => false).replaceAll(/^-I /gm, "-A "), names);
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
  const text = frameText(frame, ({ from }) => from !== "FORWARD");
  expect(text.match(/^-I .*/gm)).toEqual(['-I FORWARD -m comment --comment "kpng ipvs" -j KPNGIPVS-FORWARD']);
});
