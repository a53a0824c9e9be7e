import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { hasJump, looksLike, parseFrame } from "../commit/node-frame.ts";
import { objectNames } from "./kernel-objects.ts";
import { type Frame, frameLines, renderFrame } from "./render-frame.ts";

const names = objectNames("");
const frameOf = (node = nodePlan(), isBesideFelix = false): Frame =>
  renderFrame({ names, family: "v4", node, masqueradeBit: 14, isBesideFelix });

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
  const printed = parseFrame(
    frameLines(frame, () => false, 0)
      .join("\n")
      .replaceAll(/^-I (\S+)(?: \d+)? /gm, "-A $1 "),
    names,
  );
  expect(looksLike(printed, frame)).toBe(true);
  expect(frame.jumps.every((jump) => hasJump(printed, jump))).toBe(true);
  expect(looksLike({ rules: printed.rules.slice(1) }, frame)).toBe(false);
  // An installation would not remove a second jump, so it would be a difference forever.
  expect(
    looksLike({ rules: [...printed.rules, ...printed.rules.filter((rule) => rule.includes("-A OUTPUT "))] }, frame),
  ).toBe(true);
  expect(looksLike(printed, frameOf(nodePlan({ podTraffic: undefined })))).toBe(false);
  expect(parseFrame("*filter\n-A INPUT -j ACCEPT\n-A KPNG-SVC -j ACCEPT\n-A INPUT -j KPNG-X\n", names).rules).toEqual(
    [],
  );
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
