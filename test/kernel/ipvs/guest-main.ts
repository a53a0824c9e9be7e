import { PacketRun, packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { serveSctp, whyNoSctp } from "@kpng/laboratory/check/sctp.ts";
import { buildTwoNodes, targetPorts } from "@kpng/laboratory/check/two-nodes.ts";
import { kpngIpvs } from "../backend/kpng-proxy.ts";
import { guestChecks } from "./guest-checks.ts";
import { GuestResults } from "./guest-results.ts";
import { NodeUnderTest } from "./node-under-test.ts";

// Runs the checks of kpng-ipvs, and judges it by packets, inside the guest.

const answerMs = Number(process.env.KPNG_ANSWER_MS ?? 3_000);
const results = new GuestResults(process.argv);
if (results.wantsAny(Object.keys(guestChecks))) {
  const world = await buildTwoNodes({ answerMs });
  const node = await NodeUnderTest.start(world);
  for (const [name, check] of Object.entries(guestChecks)) await results.report(name, () => check(world, node));
  await world.close();
}

const world = await buildTwoNodes({ answerMs });
if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
const run = await PacketRun.begin(world, await kpngIpvs(world));
for (const { id, run: check } of packetCases) await results.report(id, () => check(run));
await run.proxy.close();
await world.close();
process.exit(0);
