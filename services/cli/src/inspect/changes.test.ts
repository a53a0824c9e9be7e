import { create } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Change, ChangeSchema, ObjectKind } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { expect, test } from "vitest";
import { formatTrace } from "./changes.ts";

const storedMs = Date.UTC(2026, 0, 2, 3, 4, 5, 60);

const spread = (ms: number) => ({
  count: 2,
  p50: durationFromMs(ms),
  p99: durationFromMs(ms),
  max: durationFromMs(ms),
});

const change: Change = create(ChangeSchema, {
  revision: 42n,
  objects: [{ kind: ObjectKind.ENDPOINTS, key: "default/web" }],
  objectCount: 1n,
  source: "kube",
  triggeredAt: timestampFromMs(storedMs - 2_060),
  receivedAt: timestampFromMs(storedMs - 10),
  storedAt: timestampFromMs(storedMs),
  toldCount: 3,
  appliedCount: 2,
  failedCount: 1,
  stages: {
    send: spread(10),
    transit: spread(20),
    wait: spread(5),
    render: spread(5),
    commit: spread(30),
    total: spread(70),
  },
  slowest: {
    node: "n2",
    send: durationFromMs(10),
    transit: durationFromMs(20),
    timings: { wait: durationFromMs(10), render: durationFromMs(10), commit: durationFromMs(20) },
    total: durationFromMs(70),
  },
  failures: [{ node: "n3", error: "nft failed" }],
});

test("a change has its stages, of all nodes and of the slowest, and its failures", () => {
  expect(formatTrace(change)).toBe(
    [
      "revision 42  03:04:05.060  endpoints default/web  from kube  sent 3, applied 2, failed 1",
      "  STAGE     MEDIAN   P99    n2",
      "  trigger   2.05s    -      2.05s",
      "  store     10ms     -      10ms",
      "  send      10ms     10ms   10ms",
      "  transit   20ms     20ms   20ms",
      "  wait      5ms      5ms    10ms",
      "  render    5ms      5ms    10ms",
      "  commit    30ms     30ms   20ms",
      "  total     70ms     70ms   70ms",
      "  failed on n3: nft failed",
      "",
    ].join("\n"),
  );
});

test("a change that no node has applied is one line", () => {
  const young = create(ChangeSchema, { revision: 7n, storedAt: timestampFromMs(storedMs), toldCount: 2 });
  expect(formatTrace(young)).toBe(
    "revision 7  03:04:05.060  service CIDRs, or the end of an initial list  sent 2, applied 0\n",
  );
});
