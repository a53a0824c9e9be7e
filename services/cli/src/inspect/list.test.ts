import { create } from "@bufbuild/protobuf";
import { type Node, NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { describe, expect, test } from "vitest";
import { parseLabelSelector, watchLabels } from "./list.ts";

describe("a label selector as in kubectl", () => {
  const labels = { app: "web", tier: "front", "k8s.io/zone": "za", empty: "" };

  test.each([
    ["app=web", true],
    ["app==web", true],
    ["app=db", false],
    ["app!=db", true],
    ["none!=db", true],
    ["app=web,tier=back", false],
    ["app in (db, web),k8s.io/zone = za", true],
    ["app notin (db,web)", false],
    ["none notin (db)", true],
    ["none in (db)", false],
    ["empty=", true],
    ["tier", true],
    ["!tier", false],
    ["!none", true],
  ])("%s matches: %s", (text, expected) => {
    expect(parseLabelSelector(text)(labels)).toBe(expected);
  });

  test.each(["", "a b", "a=b=c", "a in b", "=b", "a=(b)"])("%j is refused", (text) => {
    expect(() => parseLabelSelector(text)).toThrow("is not a label selector");
  });
});

test("a watch by labels reports a row that no longer matches as deleted, and no row that never matched", () => {
  const node = (name: string, zone: string) => create(NodeSchema, { name, labels: { zone } });
  const select = watchLabels<Node>(parseLabelSelector("zone=zb"), ({ name }) => name);
  const follow = (rows: Node[], deleted: string[]) => {
    const next = select({ rows, deleted });
    return [next.rows.map(({ name }) => name), next.deleted];
  };
  expect(follow([node("n1", "za"), node("n2", "zb"), node("n3", "zb")], [])).toEqual([["n2", "n3"], []]);
  expect(follow([node("n2", "za")], ["n1", "n3"])).toEqual([[], ["n3", "n2"]]);
  expect(follow([], ["n2"])).toEqual([[], []]);
});
