import { create } from "@bufbuild/protobuf";
import { type Node, NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { describe, expect, test } from "vitest";
import type { Options } from "../context/command-context.ts";
import { parseLabelSelector, RowSelection } from "./list.ts";

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

describe("a selection of rows", () => {
  const node = (name: string, zone: string) => create(NodeSchema, { name, labels: { zone } });
  const nodes = [node("n1", "za"), node("n2", "zb"), node("n3", "zb")];

  test("has the rows with these labels, and all without a selector", () => {
    const names = (options: Options) => new RowSelection<Node>(options).keep(nodes).map((row) => row.name);
    expect(names({ selector: parseLabelSelector("zone=za") })).toEqual(["n1"]);
    expect(names({})).toEqual(["n1", "n2", "n3"]);
  });

  test("of a watch reports a row that no longer matches as deleted, and no row that never matched", () => {
    const selection = new RowSelection<Node>({ selector: parseLabelSelector("zone=zb") });
    const follow = (rows: Node[], deleted: string[]) => {
      const next = selection.follow(rows, deleted, ({ name }) => name);
      return [next.rows.map(({ name }) => name), next.deleted];
    };
    expect(follow(nodes, [])).toEqual([["n2", "n3"], []]);
    expect(follow([node("n2", "za")], ["n1", "n3"])).toEqual([[], ["n3", "n2"]]);
    expect(follow([], ["n2"])).toEqual([[], []]);
  });
});
