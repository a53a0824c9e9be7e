import { numberBytes } from "@kpng/model/byte-text.ts";
import { expect, test } from "vitest";
import { addressBytes } from "../layout/elements.ts";
import { formatElement } from "../layout/format-element.ts";
import { noElements } from "../read/read-table.ts";
import { ElementTable } from "./element-table.ts";

const [one, two] = [addressBytes("10.0.0.1"), addressBytes("10.0.0.2")];

function changesOf(table: ElementTable): readonly string[] {
  return table
    .changes()
    .flatMap(({ kind, set, elements }) =>
      Array.from(elements, ({ key, value }) => `${kind} ${formatElement("v4", set, key, value)}`),
    );
}

test("a change and its reversal are no change", () => {
  const table = new ElementTable();
  table.put("picks", numberBytes(1), "pick_1");
  table.delete("picks", numberBytes(1));
  expect(changesOf(table)).toEqual([]);
  table.put("picks", numberBytes(1), "pick_1");
  table.committed();
  table.delete("picks", numberBytes(1));
  table.put("picks", numberBytes(1), "pick_1");
  expect(changesOf(table)).toEqual([]);
});

test("a comment that nft would refuse because of its length is cut off", () => {
  const table = new ElementTable();
  table.put("picks", numberBytes(1), "pick_1", "p".repeat(191));
  table.claim("cluster_ips", one, "", "c".repeat(300));
  const comments = table.changes().flatMap(({ elements }) => Array.from(elements, ({ comment }) => comment));
  expect(comments.sort()).toEqual(["c".repeat(127), "p".repeat(127)]);
});

test("after a comparison with the kernel, changes lead from its elements to the desired ones", async () => {
  const table = new ElementTable();
  table.put("cluster_ips", one, "");
  table.put("picks", numberBytes(1), "pick_1");
  await table.compareWith({
    ...noElements,
    cluster_ips: new Map([[two, ""]]),
    picks: new Map([[numberBytes(1), "pick_1"]]),
  });
  expect(changesOf(table)).toEqual(["delete cluster_ips { 10.0.0.2 }", "put cluster_ips { 10.0.0.1 }"]);
});
