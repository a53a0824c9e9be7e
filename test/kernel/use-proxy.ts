import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { buildTwoNodes, type TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { afterAll, beforeAll } from "vitest";

/**
 * Registers hooks that build the network of the scenarios, open a proxy on n1, and close both after the last test.
 * Returns functions that return them.
 */
export function useProxy(
  open: (world: TwoNodes) => Promise<CommandProxy>,
  build: () => Promise<TwoNodes> = buildTwoNodes,
) {
  let world: TwoNodes;
  let proxy: CommandProxy;
  beforeAll(async () => {
    world = await build();
    proxy = await open(world);
  });
  afterAll(async () => {
    await proxy?.close();
    await world?.close();
  });
  return { world: () => world, proxy: () => proxy };
}
