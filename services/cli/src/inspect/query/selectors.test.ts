import { create } from "@bufbuild/protobuf";
import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { describe, expect, test } from "vitest";
import { parseLabelSelector, RowSelection } from "./selectors.ts";

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
  const node = (name: string, state: ApplyState, zone = "") =>
    create(NodeSchema, { name, state, zone, labels: { zone } });
  const nodes = [
    node("n1", ApplyState.CURRENT, "za"),
    node("n2", ApplyState.FAILING, "zb"),
    node("n3", ApplyState.FAILING),
  ];
  const names = (options: Record<string, string>): readonly string[] =>
    new RowSelection(NodeSchema, options).keep(nodes).map(({ name }) => name);

  test.each([
    [{ fieldSelector: "state=failing" }, ["n2", "n3"]],
    [{ fieldSelector: "state!=failing" }, ["n1"]],
    [{ fieldSelector: "metadata.name=n2" }, ["n2"]],
    [{ fieldSelector: "state=failing,zone=" }, ["n3"]],
    [{ fieldSelector: "isKnown=false,zone!=za" }, ["n2", "n3"]],
    [{ selector: "zone=za" }, ["n1"]],
    [{}, ["n1", "n2", "n3"]],
  ])("%j", (options, expected) => {
    expect(names(options)).toEqual(expected);
  });

  test("by a field that the rows do not have is refused with those that they have", () => {
    expect(() => names({ fieldSelector: "status=bad" })).toThrow(/no field "status"; there are name, .*state/);
  });

  test("of a watch reports a row that no longer matches as deleted, and no row that never matched", () => {
    const selection = new RowSelection(NodeSchema, { fieldSelector: "state=failing" });
    const follow = (rows: typeof nodes, deleted: string[]) => {
      const next = selection.follow(rows, deleted, ({ name }) => name);
      return [next.rows.map(({ name }) => name), next.deleted];
    };
    expect(follow(nodes, [])).toEqual([["n2", "n3"], []]);
    expect(follow([node("n2", ApplyState.CURRENT)], ["n1", "n3"])).toEqual([[], ["n3", "n2"]]);
    expect(follow([], ["n2"])).toEqual([[], []]);
  });
});
