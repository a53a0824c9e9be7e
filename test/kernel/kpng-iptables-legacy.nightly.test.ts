import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { NotRunnable, PacketRun, packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { serveSctp, whyNoSctp } from "@kpng/laboratory/check/sctp.ts";
import { type TwoNodes, targetPorts } from "@kpng/laboratory/check/two-nodes.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import { kpngIptables } from "./backend/kpng-proxy.ts";
import { whyNoPackets } from "./describe-packets.ts";
import { buildVariant, whyNoLegacy } from "./laboratory/legacy-tools.ts";

describeWhere("conformance by packets: kpng-iptables with iptables-legacy", whyNoPackets ?? whyNoLegacy(), () => {
  let world: TwoNodes;
  let proxy: CommandProxy;
  let run: PacketRun;
  beforeAll(async () => {
    world = await buildVariant("legacy");
    if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
    proxy = await kpngIptables(world);
    run = await PacketRun.begin(world, proxy);
  });
  afterAll(async () => {
    await proxy?.close();
    await world?.close();
  });

  test.for(packetCases)("$id", { timeout: 60_000 }, async ({ run: check }, { skip }) => {
    const wrong = await check(run).catch((error: unknown) => {
      if (error instanceof NotRunnable) skip(error.message);
      throw error;
    });
    expect(wrong).toEqual([]);
  });
});
