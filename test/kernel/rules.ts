import { checkRules } from "../conformance/check-rules.ts";
import type { InstalledRules } from "./backends.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** Rules that `iptables-save` prints, of kube-proxy or of kpng-iptables. */
export const iptablesRules: InstalledRules = {
  show: async (world) => {
    const { v4, v6 } = await world.rules();
    return v4 + v6;
  },
  trace: async (world, scenario, proxy) => checkRules(await world.rules(), scenario, proxy),
};

/** Empties table nat. Without any rule that uses connection tracking, the kernel would stop translating back. */
export async function flushNat(world: TwoNodes): Promise<void> {
  await flushTables(world, ["nat"]);
}

/** Empties tables of both families on n1. */
export async function flushTables({ laboratory }: TwoNodes, tables: readonly string[]): Promise<void> {
  for (const table of tables) {
    for (const tool of ["iptables", "ip6tables"]) await laboratory.run("n1", [tool, "-t", table, "-F"]);
  }
}

/**
 * Empties the chain `services` of a table of kpng-nft or kube-proxy. The other chains stay: without any rule that uses
 * connection tracking, the kernel would stop tracking and translating back.
 */
export async function flushServices({ laboratory }: TwoNodes, table: string): Promise<void> {
  for (const ip of ["ip", "ip6"]) await laboratory.run("n1", ["nft", "flush", "chain", ip, table, "services"]);
}
