import { expect, test } from "vitest";
import { chainNames } from "../render/chain-names.ts";
import type { ChainId } from "../render/table.ts";
import { findInstalledState } from "./installed-state.ts";

const services = ["nat KPNG-SERVICES", "-A KPNG-SERVICES -d 10.96.0.0/24 -j KPNG-IP-10.96.0.0\n"] as const;
const record = ["nat KPNG-RECORD", '-A KPNG-RECORD -m comment --comment "kpng layout 1; boot=1,plans=2"\n'] as const;
const emptied = (chain: readonly [ChainId, string]): readonly [ChainId, string] => [chain[0], ""];

test.each<{
  readonly name: string;
  readonly chains: readonly (readonly [ChainId, string])[];
  readonly hasJumps: boolean;
  readonly state: ReturnType<typeof findInstalledState>;
}>([
  { name: "no rules", chains: [], hasJumps: false, state: { kind: "absent" } },
  {
    name: "rules with a record",
    chains: [services, record],
    hasJumps: true,
    state: { kind: "marked", record: "boot=1,plans=2" },
  },
  {
    name: "rules with a record and without jumps",
    chains: [services, record],
    hasJumps: false,
    state: { kind: "marked", record: "boot=1,plans=2" },
  },
  { name: "rules of a release without records", chains: [services], hasJumps: true, state: { kind: "unmarked" } },
  {
    name: "rules without a record that nothing reaches",
    chains: [services],
    hasJumps: false,
    state: { kind: "absent" },
  },
  {
    name: "jumps to chains that another program has flushed",
    chains: [emptied(services), emptied(record)],
    hasJumps: true,
    state: { kind: "absent" },
  },
])("$name are $state.kind", ({ chains, hasJumps, state }) => {
  const jumps = new Map<ChainId, readonly string[]>(hasJumps ? [["nat PREROUTING", ["-j KPNG-SERVICES"]]] : []);
  expect(findInstalledState({ chains: new Map(chains), jumps }, chainNames("KPNG-"))).toEqual(state);
});
