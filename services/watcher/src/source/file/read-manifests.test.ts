import assert from "node:assert/strict";
import { test } from "vitest";
import { manifests, readGood } from "./testing/texts.ts";

test("manifests: kinds that a proxy needs are read, the others are counted and said once", () => {
  const { services, slices, nodes, notes } = readGood(manifests);
  assert.deepEqual([services.length, slices.length, nodes.length], [1, 1, 1]);
  assert.deepEqual(
    notes.map((note) => note.note),
    ["2 of kind Deployment (apps/v1) left out", "1 of kind Service (serving.knative.dev/v1) left out"],
  );
});

test("manifests: lists are read, in JSON too, and items of a ServiceList need no kind", () => {
  const items = [{ metadata: { name: "web" } }];
  const { services, nodes } = readGood(
    JSON.stringify({ apiVersion: "v1", kind: "ServiceList", items }),
    "kind: List\napiVersion: v1\nitems:\n- {kind: Node, apiVersion: v1, metadata: {name: n1}}\n- {kind: NodeList, items: [{metadata: {name: n2}}]}\n",
    "kind: EndpointSliceList\nitems: null\n",
  );
  assert.deepEqual([services.map((service) => service.name), nodes.map((node) => node.name)], [["web"], ["n1", "n2"]]);
});

test("manifests: a slice without its Service stays, and only debug says so", () => {
  const [, slice = ""] = manifests.split("---\n");
  const { slices, notes } = readGood(slice);
  assert.equal(slices.length, 1);
  assert.deepEqual(
    notes.map(({ level, note }) => [level, note]),
    [["debug", "EndpointSlice web-a belongs to Service web, which is not there"]],
  );
});

test("empty files, empty documents and comments are a cluster without anything", () => {
  const { services, slices, nodes } = readGood("", "---\n---\n# x\n", "{}");
  assert.deepEqual([services, slices, nodes], [[], [], []]);
});
