import { packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import { type PacketResult, runPackets } from "../conformance/packets/run-packets.ts";
import type { OwnProxy } from "./backend/kpng-proxy.ts";
import { whyNoPackets } from "./describe-packets.ts";

/** A proxy that `kpng conformance packets` judges. */
interface JudgedProxy {
  readonly name: string;
  /** Reason why it cannot run here. Default: it can. */
  readonly whyNot?: string | undefined;
  readonly start: () => Promise<Judged> | Judged;
  /** Ids of the cases. Default: all. */
  readonly cases?: readonly string[] | undefined;
}

interface Judged {
  readonly proxy: OwnProxy;
  /** Additional options of `kpng conformance packets`. Default: none. */
  readonly options?: readonly string[] | undefined;
  /** Default: nothing to stop. */
  readonly stop?: (() => Promise<void>) | undefined;
}

const allCases = packetCases.map(({ id }) => id);

/** Has a test for each case of `kpng conformance packets`. One run judges all of them. */
export function describeProxy({ name, whyNot, start, cases = allCases }: JudgedProxy): void {
  describeWhere(`conformance by packets: ${name}`, whyNoPackets ?? whyNot, () => {
    let results: ReadonlyMap<string, PacketResult> = new Map();
    let output = "";
    let judged: Judged | undefined;
    beforeAll(async () => {
      judged = await start();
      ({ results, stderr: output } = await runPackets(judged.proxy, cases, judged.options));
    }, 600_000);
    afterAll(async () => judged?.stop?.());

    test.for(cases)("%s", (id, { skip }) => {
      const { kind, reason } = results.get(id) ?? { kind: "failed", reason: `it was not run:\n${output}` };
      if (kind === "failed" || (kind === "not-applicable" && process.env.CI === "true")) expect.fail(reason);
      if (kind !== "passed") skip(reason);
    });
  });
}
