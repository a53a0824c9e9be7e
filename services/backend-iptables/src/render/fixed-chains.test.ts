import { expect, test } from "vitest";
import { type OptionParts, renderOptions } from "../testing/rules.ts";
import { renderFixedChains, renderJumps } from "./fixed-chains.ts";

const notes = / ?-m comment --comment "[^"]*"/g;
const fixed = (id: `nat ${string}` | `filter ${string}`, parts: OptionParts = {}) => {
  const rules = renderFixedChains(renderOptions(parts)).get(id);
  return rules && [...rules.head, ...rules.tail].map((rule) => rule.replace(notes, "").trim());
};

const local = "-m addrtype --dst-type LOCAL -j KPNG-NODEPORTS";
const nodePorts: readonly { name: string; parts: OptionParts; rules: readonly string[] }[] = [
  { name: "on every address", parts: {}, rules: [local] },
  { name: "not on localhost", parts: { node: { isLoopbackNodePorts: false } }, rules: [`! -d 127.0.0.0/8 ${local}`] },
  { name: "never on localhost of IPv6", parts: { node: { family: "v6" } }, rules: [`! -d ::1/128 ${local}`] },
  {
    name: "on some addresses",
    parts: { node: { nodePortAddresses: ["192.168.0.2", "192.168.0.3"] } },
    rules: ["-d 192.168.0.2/32 -j KPNG-NODEPORTS", "-d 192.168.0.3/32 -j KPNG-NODEPORTS"],
  },
  { name: "on none", parts: { node: { nodePortAddresses: [] } }, rules: [] },
];
test.each(nodePorts)("node ports answer $name", ({ parts, rules }) => {
  expect(fixed("nat KPNG-SERVICES", parts)).toEqual(rules);
});

test("INVALID is dropped unless conntrack is liberal, before anything is accepted", () => {
  expect(fixed("filter KPNG-FORWARD")?.[0]).toBe("-m conntrack --ctstate INVALID -j DROP");
  expect(fixed("filter KPNG-FORWARD", { isConntrackLiberal: true })).toEqual([
    "-m mark --mark 0x4000/0x4000 -j ACCEPT",
    "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
  ]);
});

test("the mark has the bit that was asked for, and is taken away before the masquerade", () => {
  expect(fixed("nat KPNG-MARK-MASQ", { masqueradeMark: 0x8000_0000 })).toEqual([
    "-j MARK --set-xmark 0x80000000/0x80000000",
  ]);
  expect(fixed("nat KPNG-POSTROUTING")).toEqual([
    "-m mark ! --mark 0x4000/0x4000 -m conntrack --ctstate DNAT -j KPNG-HAIRPIN",
    "-m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-j MARK --set-xmark 0x4000/0x0",
    "-j MASQUERADE --random-fully",
  ]);
});

test("the guard of 127.0.0.1 is rendered for IPv4", () => {
  expect(fixed("filter KPNG-LOCALNET")).toHaveLength(1);
  expect(fixed("filter KPNG-LOCALNET", { node: { family: "v6" } })).toBeUndefined();
});

test("every jump leads to a chain that exists", () => {
  for (const parts of [{}, { node: { family: "v6" as const } }]) {
    const chains = renderFixedChains(renderOptions(parts));
    for (const [id, jumps] of renderJumps(renderOptions(parts))) {
      for (const jump of jumps) {
        const target = jump.split(" -j ")[1] ?? "";
        expect([...chains.keys()]).toContain(`${id.split(" ")[0]} ${target}`);
      }
    }
  }
});
