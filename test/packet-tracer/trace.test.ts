import { expect, test } from "vitest";
import { parseRuleset } from "./parse-ruleset.ts";
import { trace } from "./trace.ts";

// That the tracer does what a kernel does is shown by test/kernel, which traces the packets of each scenario, too.

const node = { localCIDRs: ["192.0.2.1"], outInterface: () => "eth0" };
const packet = { protocol: "tcp", source: "192.0.2.20", destination: "10.96.0.1", port: 80, inInterface: "eth0" };

test.each([
  { rule: "-A PREROUTING -m set --match-set A dst -j DROP", message: /--match-set/ },
  { rule: "-A PREROUTING -j NOWHERE", message: /no chain NOWHERE/ },
  { rule: "-A PREROUTING -j PREROUTING", message: /loop/ },
  { rule: "-D PREROUTING 1", message: /-D PREROUTING/ },
])("the tracer does not guess: $rule", ({ rule, message }) => {
  expect(() => trace(parseRuleset(`*nat\n${rule}\nCOMMIT`), node, packet)).toThrow(message);
});

test("a long chain, which has an index, is traced in its order", () => {
  const others = Array.from(
    { length: 40 },
    (_, at) => `-A PREROUTING -d 10.96.1.${at}/32 -j DNAT --to-destination 10.9.9.9:1`,
  );
  const rules = [
    ...others,
    "-A PREROUTING -s 192.0.2.9/32 -j RETURN",
    "-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.1.11:8080",
  ];
  const ruleset = parseRuleset(["*nat", ...rules, "COMMIT"].join("\n"));
  const to = { kind: "to", address: "10.1.1.11", port: 8080, isMasqueraded: false };
  expect(trace(ruleset, node, packet)).toEqual([to]);
  expect(trace(ruleset, node, { ...packet, source: "192.0.2.9" })).toEqual([{ kind: "untouched" }]);
});
