import { expect, test } from "vitest";
import { ChainNames } from "../render/chains.ts";
import type { ChainId } from "../render/rule.ts";
import { savedRules } from "../testing/rules.ts";
import { adoptChains, canonicalRule, isSameRule } from "./canonical-rule.ts";
import { findInstalledRules, InstalledRulesReader, isReached } from "./installed-rules.ts";

test("our chains and our jumps are found in the output of iptables-save", () => {
  const { chains, jumps } = findInstalledRules(savedRules, "KPNG-");
  expect([...chains]).toEqual([
    ["nat KPNG-SERVICES", "-A KPNG-SERVICES -d 10.96.0.1/32 -j KPNG-EMPTY\n"],
    ["nat KPNG-EMPTY", ""],
    ["filter KPNG-FORWARD", ""],
  ]);
  expect([...jumps]).toEqual([["nat PREROUTING", ['-m comment --comment "ours" -j KPNG-SERVICES']]]);
});

const bodies = ["", "-A P-1 -j A\n", "-A P-1 -j A\n-A P-1 -j B\n", "-A P-1 -j B\n-A P-1 -j A\n"];
const pairs = bodies.flatMap((installed) => [undefined, ...bodies].map((desired) => ({ installed, desired })));
test.each(pairs)(
  "a chain with the rules $installed is read, desired $desired, wherever the output is cut",
  ({ installed, desired }) => {
    const text = `*nat\n:P-1 - [0:0]\n:P-2 - [0:0]\n${installed}-A P-2 -j X\nCOMMIT\n`;
    for (let cut = 0; cut <= text.length; cut++) {
      const reader = new InstalledRulesReader(
        "P-",
        desired === undefined ? undefined : new Map([["nat P-1", desired]]),
      );
      reader.take(text.slice(0, cut));
      reader.take(text.slice(cut));
      expect([...reader.end().chains], `cut at ${cut}`).toEqual([
        ["nat P-1", installed],
        ["nat P-2", "-A P-2 -j X\n"],
      ]);
    }
  },
);

test("a chain whose rules are printed in two places has the rules of both", () => {
  const desired = new Map<ChainId, string>([["nat P-1", "-A P-1 -j A\n-A P-1 -j B\n"]]);
  const reader = new InstalledRulesReader("P-", desired);
  reader.take("*nat\n:P-1 - [0:0]\n-A P-1 -j A\n-A P-2 -j X\n-A P-1 -j B\nCOMMIT\n");
  expect(reader.end().chains.get("nat P-1")).toBe(desired.get("nat P-1"));
});

const same: readonly (readonly [string, string])[] = [
  ["-s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j X", "-p tcp -s 10.0.0.1 -m tcp --dport 80 -j X"],
  [
    "-p tcp -m statistic --mode random --probability 0.33333333349 -j X",
    "-p tcp -m statistic --mode random --probability 0.3333333335 -j X",
  ],
  ['-m comment --comment "a" -j X', "-m comment --comment a -j X"],
  ["-m recent --set --name N --mask 255.255.255.255 --rsource -j X", "-m recent --set --name N -j X"],
  ["-j MARK --set-xmark 0x4000/0x4000", "-j MARK --or-mark 0x4000"],
  ["-j MARK --set-xmark 0x4000/0x0", "-j MARK --xor-mark 0x4000"],
  ["-d ::ffff:10.0.0.1/128 -j X", "-d ::ffff:a00:1/128 -j X"],
  ["-s ::ffff:10.0.0.0/120 -j X", "-s ::ffff:a00:0/120 -j X"],
  ["-j DNAT --to-destination [::ffff:10.1.2.3]:80", "-j DNAT --to-destination [::ffff:a01:203]:80"],
];
test.each(same)("%s means the same as %s", (a, b) => {
  expect(canonicalRule(a)).toBe(canonicalRule(b));
});

const different: readonly (readonly [string, string])[] = [
  ["-s 10.0.0.1/32 -j X", "! -s 10.0.0.1/32 -j X"],
  ["-d 10.0.0.1/32 -j X", "-s 10.0.0.1/32 -j X"],
  ["-m statistic --mode random --probability 0.5 -j X", "-m statistic --mode random --probability 0.4 -j X"],
  ["-j DNAT --to-destination 10.0.0.1:80", "-j DNAT --to-destination 10.0.0.1:81"],
  ["-j X", "-g X"],
  ["-d ::ffff:10.0.0.1/128 -j X", "-d ::ffff:a00:2/128 -j X"],
];
test.each(different)("%s does not mean the same as %s", (a, b) => {
  expect(isSameRule(a, b)).toBe(false);
});

test("an installed chain gets the desired text if its rules mean the same, and keeps its own text otherwise", () => {
  const installed = new Map<ChainId, string>([
    ["nat A-1", "-A A-1 -p tcp -s 10.0.0.1 -j X\n"],
    ["nat A-2", "-A A-2 -j ACCEPT\n"],
    ["nat A-3", "-A A-3 -j X\n-A A-3 -j Y\n"],
  ]);
  const desired = new Map<ChainId, string>([
    ["nat A-1", "-A A-1 -s 10.0.0.1/32 -p tcp -j X\n"],
    ["nat A-3", "-A A-3 -j Y\n-A A-3 -j X\n"],
  ]);
  expect([...adoptChains(installed, desired)]).toEqual([
    ["nat A-1", "-A A-1 -s 10.0.0.1/32 -p tcp -j X\n"],
    ["nat A-2", "-A A-2 -j ACCEPT\n"],
    ["nat A-3", "-A A-3 -j X\n-A A-3 -j Y\n"],
  ]);
});

test.each([
  { name: "no rules", services: undefined, hasJumps: false, reached: false },
  { name: "rules with jumps", services: "-A KPNG-SERVICES -j KPNG-IP-10.96.0.0\n", hasJumps: true, reached: true },
  { name: "rules without jumps", services: "-A KPNG-SERVICES -j KPNG-IP-10.96.0.0\n", hasJumps: false, reached: false },
  { name: "jumps to chains that another program has flushed", services: "", hasJumps: true, reached: false },
])("$name are reached by packets: $reached", ({ services, hasJumps, reached }) => {
  const chains = new Map<ChainId, string>(services === undefined ? [] : [["nat KPNG-SERVICES", services]]);
  const jumps = new Map<ChainId, readonly string[]>(hasJumps ? [["nat PREROUTING", ["-j KPNG-SERVICES"]]] : []);
  expect(isReached({ chains, jumps }, new ChainNames("KPNG-"))).toBe(reached);
});
