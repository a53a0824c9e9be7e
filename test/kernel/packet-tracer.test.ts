import { PacketRun } from "@kpng/laboratory/check/packet-cases.ts";
import { scenarios } from "@kpng/laboratory/scenario/scenarios.ts";
import { beforeAll, expect, test } from "vitest";
import { checkRules } from "../conformance/check-rules.ts";
import { kpngIptables } from "./backend/kpng-proxy.ts";
import { describePackets } from "./describe-packets.ts";
import { useProxy } from "./use-proxy.ts";

// test/peer relies on the tracer alone, so it must find in the rules what packets find in the kernel.
describePackets("the packet tracer, with the rules of kpng-iptables", () => {
  const { world, proxy } = useProxy(kpngIptables);
  let run: PacketRun;
  beforeAll(async () => {
    run = await PacketRun.begin(world(), proxy());
  });

  test.each(scenarios)("$name", async (scenario) => {
    await run.bringTo(scenario);
    expect(checkRules(await world().rules(), scenario, proxy().profile)).toEqual([]);
  });
});
