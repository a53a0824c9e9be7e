import { NotRunnable, PacketRun, packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { serveSctp, whyNoSctp } from "@kpng/laboratory/check/sctp.ts";
import { targetPorts } from "@kpng/laboratory/check/two-nodes.ts";
import { beforeAll, expect, test } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import { kpngIptables } from "./backend/kpng-proxy.ts";
import { whyNoPackets } from "./describe-packets.ts";
import { buildVariant, whyNoLegacy } from "./laboratory/legacy-tools.ts";
import { useProxy } from "./use-proxy.ts";

describeWhere("conformance by packets: kpng-iptables with iptables-legacy", whyNoPackets ?? whyNoLegacy(), () => {
  const { world, proxy } = useProxy(kpngIptables, () => buildVariant("legacy"));
  let run: PacketRun;
  beforeAll(async () => {
    if (whyNoSctp() === undefined) await serveSctp(world().laboratory, targetPorts);
    run = await PacketRun.begin(world(), proxy());
  });

  test.for(packetCases)("$id", { timeout: 60_000 }, async ({ run: check }, { skip }) => {
    const wrong = await check(run).catch((error: unknown) => {
      if (error instanceof NotRunnable) skip(error.message);
      throw error;
    });
    expect(wrong).toEqual([]);
  });
});
