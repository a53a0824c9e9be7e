import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { FindingSeverity } from "@kpng/model/gen/kpng/inspect/v1/finding_pb.ts";
import { GetStatusResponseSchema, ListFindingsResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { expect, test } from "vitest";
import { mergeFindings } from "./findings.ts";
import { formatStatus } from "./status.ts";

const nowMs = 1_800_000_000_000;

test("the screen has states, the nodes that are not up to date, the latest changes, and where to look next", () => {
  const node = (name: string, state: ApplyState, rest = {}) =>
    create(NodeSchema, { name, isKnown: true, podCidrs: ["10.1.0.0/24"], state, ...rest });
  const status = create(GetStatusResponseSchema, {
    instance: "a1",
    revision: 12n,
    isSynced: true,
    startedAt: timestampFromMs(nowMs - 120_000),
    serviceCount: 1,
    nodeCount: 4,
  });
  const nodes = [
    node("n1", ApplyState.CURRENT),
    node("n2", ApplyState.FAILING, { error: "no nft", unappliedSince: timestampFromMs(nowMs - 5_000) }),
    node("n3", ApplyState.FAILING, { error: "no nft" }),
    node("n4", ApplyState.BEHIND, { unappliedSince: timestampFromMs(nowMs - 60_000) }),
  ];
  const finding = (subject: string, text: string) => ({ severity: FindingSeverity.ERROR, subject, text });
  const findings = create(ListFindingsResponseSchema, {
    findings: ["n2", "n3", "n4", "n5"].map((name) => finding(`node/${name}`, "no nft")),
    errorCount: 4,
  });
  const screen = formatStatus([{ api: "", value: { status, findings, nodes, changes: [] } }], nowMs, "all");
  expect(screen.split("\n\n")[0]).toBe(
    `watcher   revision 12, up 2m, instance a1
source    listed completely
cluster   1 Service, 0 endpoints, 0 slices, 4 nodes
nodes     1 current, 1 behind, 2 failing
findings  4 errors, 0 warnings: run kpng analyze
          error node/n2: no nft
          error node/n3: no nft
          error node/n4: no nft`,
  );
  expect(screen).toMatch(/Not up to date [^\n]*:\n +NAME .*\n +n2 +failing .* no nft\n +n3 +failing .*\n +n4 +behind /);
  expect(screen).toContain("\nLatest changes:  <none>\n");
  expect(formatStatus([{ api: "", value: { status, findings, nodes, changes: [] } }], nowMs, "late")).not.toContain(
    "1 current",
  );
});

test("a finding about the watcher names the replica that has it, unless all have it", () => {
  const status = create(GetStatusResponseSchema, {});
  const answer = (api: string, ...codes: readonly string[]) => ({
    api,
    value: {
      status,
      findings: create(ListFindingsResponseSchema, { findings: codes.map((code) => ({ code, subject: "watcher" })) }),
    },
  });
  const { findings } = mergeFindings([answer("a", "stale", "full"), answer("b", "full")]);
  expect(findings.map(({ code, subject }) => `${code}: ${subject}`)).toEqual(["stale: watcher a", "full: watcher"]);
});
