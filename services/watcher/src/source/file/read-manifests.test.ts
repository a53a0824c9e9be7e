import assert from "node:assert/strict";
import { test } from "vitest";
import { manifests, readGood } from "./testing/texts.ts";

test("manifests: kinds that a proxy needs are read, and others are counted in one note per kind", () => {
  const { services, slices, nodes, notes } = readGood(manifests);
  assert.deepEqual([services.length, slices.length, nodes.length], [1, 1, 1]);
  assert.deepEqual(
    notes.map((note) => note.note),
    ["ignored 2 of kind Deployment (apps/v1)", "ignored 1 of kind Service (serving.knative.dev/v1)"],
  );
});

test("manifests: lists are read, also in JSON, and items of a ServiceList need no kind", () => {
  const items = [{ metadata: { name: "web" } }];
  const { services, nodes } = readGood(
    JSON.stringify({ apiVersion: "v1", kind: "ServiceList", items }),
    "kind: List\napiVersion: v1\nitems:\n- {kind: Node, apiVersion: v1, metadata: {name: n1}}\n- {kind: NodeList, items: [{metadata: {name: n2}}]}\n",
    "kind: EndpointSliceList\nitems: null\n",
  );
  assert.deepEqual([services.map((service) => service.name), nodes.map((node) => node.name)], [["web"], ["n1", "n2"]]);
});

test("manifests: a slice without its Service is kept, with a note of level debug", () => {
  const [, slice = ""] = manifests.split("---\n");
  const { slices, notes } = readGood(slice);
  assert.equal(slices.length, 1);
  assert.deepEqual(
    notes.map(({ level, note }) => [level, note]),
    [["debug", "EndpointSlice web-a belongs to Service web, which does not exist"]],
  );
});

test("empty files, empty documents and comments are an empty cluster", () => {
  const { services, slices, nodes } = readGood("", "---\n---\n# x\n", "{}");
  assert.deepEqual([services, slices, nodes], [[], [], []]);
});
