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
    const { laboratory } = world();
    const [v4, v6] = [await laboratory.run("n1", ["iptables-save"]), await laboratory.run("n1", ["ip6tables-save"])];
    expect(checkRules({ v4, v6 }, scenario, proxy().profile)).toEqual([]);
  });
});
