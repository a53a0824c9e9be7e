import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { PacketRun } from "@kpng/laboratory/check/packet-cases.ts";
import { buildTwoNodes, type TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { scenarios } from "@kpng/laboratory/scenario/scenarios.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { checkRules } from "../conformance/check-rules.ts";
import { kpngIptables } from "./backend/kpng-proxy.ts";
import { describePackets } from "./describe-packets.ts";

// test/peer relies on the tracer alone, so it must find in the rules what packets find in the kernel.
describePackets("the packet tracer, with the rules of kpng-iptables", () => {
  let world: TwoNodes;
  let proxy: CommandProxy;
  let run: PacketRun;
  beforeAll(async () => {
    world = await buildTwoNodes();
    proxy = await kpngIptables(world);
    run = await PacketRun.begin(world, proxy);
  });
  afterAll(async () => {
    await proxy?.close();
    await world?.close();
  });

  test.each(scenarios)("$name", async (scenario) => {
    await run.bringTo(scenario);
    expect(checkRules(await world.rules(), scenario, proxy.profile)).toEqual([]);
  });
});
