import { expect, test } from "vitest";
import { chainNames } from "../render/chains.ts";
import type { ChainId } from "../render/rule.ts";
import { isReached } from "./installed-rules.ts";

test.each([
  { name: "no rules", services: undefined, hasJumps: false, reached: false },
  { name: "rules with jumps", services: "-A KPNG-SERVICES -j KPNG-IP-10.96.0.0\n", hasJumps: true, reached: true },
  { name: "rules without jumps", services: "-A KPNG-SERVICES -j KPNG-IP-10.96.0.0\n", hasJumps: false, reached: false },
  { name: "jumps to chains that another program has flushed", services: "", hasJumps: true, reached: false },
])("$name are reached by packets: $reached", ({ services, hasJumps, reached }) => {
  const chains = new Map<ChainId, string>(services === undefined ? [] : [["nat KPNG-SERVICES", services]]);
  const jumps = new Map<ChainId, readonly string[]>(hasJumps ? [["nat PREROUTING", ["-j KPNG-SERVICES"]]] : []);
  expect(isReached({ chains, jumps }, chainNames("KPNG-"))).toBe(reached);
});
