import assert from "node:assert/strict";
import type { Node } from "@kpng/model/node.ts";
import { test } from "vitest";
import { decodeNode } from "./decode-node.ts";
import { makeDecodeOptions, showPath } from "./decoded.ts";

const options = makeDecodeOptions();

const plain: Node = {
  name: "n1",
  zone: "",
  labels: {},
  annotations: {},
  addresses: [],
  podCIDRs: [],
  isEligible: true,
};

const table: readonly { name: string; object: unknown; is: Partial<Node>; notes?: readonly string[] }[] = [
  { name: "a name is enough", object: { metadata: { name: "n1" } }, is: {} },
  {
    name: "the zone comes from its label, and only selected labels are kept",
    object: { metadata: { name: "n1", labels: { "topology.kubernetes.io/zone": "za", other: "x" } } },
    is: { zone: "za", labels: { "topology.kubernetes.io/zone": "za" } },
  },
  {
    name: "internal addresses come first, and host names and invalid addresses are ignored",
    object: {
      metadata: { name: "n1" },
      status: {
        addresses: [
          { type: "ExternalIP", address: "192.0.2.1" },
          { type: "Hostname", address: "n1" },
          { type: "InternalIP", address: "10.9.0.1" },
          { type: "InternalIP", address: "FD09::1" },
          { type: "InternalIP", address: "n1.internal" },
          { type: "ExternalIP", address: "10.9.0.1" },
        ],
      },
    },
    is: { addresses: ["10.9.0.1", "fd09::1", "192.0.2.1"] },
    notes: ['InternalIP "n1.internal" ignored: not an IP address'],
  },
  {
    name: "podCIDRs takes precedence over podCIDR",
    object: { metadata: { name: "n1" }, spec: { podCIDR: "10.1.0.0/24", podCIDRs: ["10.1.0.0/24", "fd01::/64"] } },
    is: { podCIDRs: ["10.1.0.0/24", "fd01::/64"] },
  },
  {
    name: "podCIDR is used where podCIDRs is absent",
    object: { metadata: { name: "n1" }, spec: { podCIDR: "10.1.0.5/24" } },
    is: { podCIDRs: ["10.1.0.0/24"] },
  },
  {
    name: "a Node being deleted is not eligible",
    object: { metadata: { name: "n1", deletionTimestamp: "2024-01-01T00:00:00Z" } },
    is: { isEligible: false },
  },
  {
    name: "a Node with the autoscaler's removal taint is not eligible",
    object: { metadata: { name: "n1" }, spec: { taints: [{ key: "a" }, { key: "ToBeDeletedByClusterAutoscaler" }] } },
    is: { isEligible: false },
  },
  {
    name: "another taint does not matter",
    object: { metadata: { name: "n1", deletionTimestamp: null }, spec: { taints: [{ key: "a" }] } },
    is: {},
  },
];

for (const { name, object, is, notes } of table) {
  test(`Node: ${name}`, () => {
    assert.deepEqual(decodeNode(object, options), {
      kind: "ok",
      value: { ...plain, ...is },
      notes: notes ?? [],
      skipped: [],
    });
  });
}

const badTable: readonly { name: string; object: unknown; at: string }[] = [
  { name: "a list in place of an object", object: [], at: "" },
  { name: "a missing name", object: { metadata: {} }, at: "metadata.name" },
  {
    name: "an invalid pod CIDR",
    object: { metadata: { name: "n" }, spec: { podCIDRs: ["10.1.0.0"] } },
    at: "spec.podCIDRs[0]",
  },
  { name: "labels that are a list", object: { metadata: { name: "n", labels: [] } }, at: "metadata.labels" },
  { name: "a label that is a number", object: { metadata: { name: "n", labels: { a: 1 } } }, at: "metadata.labels.a" },
];

for (const { name, object, at } of badTable) {
  test(`Node: ${name} is invalid, and the problem names the field`, () => {
    const decoded = decodeNode(object, options);
    assert.equal(decoded.kind, "bad");
    assert.equal(showPath(decoded.path), at);
  });
}
