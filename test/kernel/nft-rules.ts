import type { TwoNodes } from "./laboratory/two-nodes.ts";

/**
 * Empties the chain `services` of a table of kpng-nft or kube-proxy. The other chains stay: without any rule that uses
 * connection tracking, the kernel would stop tracking and translating back.
 */
export async function flushServices({ laboratory }: TwoNodes, table: string): Promise<void> {
  for (const ip of ["ip", "ip6"]) await laboratory.run("n1", ["nft", "flush", "chain", ip, table, "services"]);
}
