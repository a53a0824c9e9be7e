import type { Node } from "@kpng/model/node.ts";
import { expect, test } from "vitest";
import { node } from "../testing/build.ts";
import { decodeNode } from "./decode-node.ts";
import { makeDecodeOptions, showPath } from "./decoded.ts";

const options = makeDecodeOptions();

interface Parts {
  readonly metadata?: object;
  readonly spec?: object;
  readonly status?: object;
}

const decode = ({ metadata, ...parts }: Parts) =>
  decodeNode({ metadata: { name: "n1", ...metadata }, ...parts }, options);

test.each<Parts & { rule: string; is: Partial<Node> }>([
  { rule: "a name is enough", is: {} },
  {
    rule: "the zone comes from its label, and only selected labels are kept",
    metadata: { labels: { "topology.kubernetes.io/zone": "za", other: "x" } },
    is: { zone: "za", labels: { "topology.kubernetes.io/zone": "za" } },
  },
  {
    rule: "podCIDRs takes precedence over podCIDR",
    spec: { podCIDR: "10.1.0.0/24", podCIDRs: ["10.1.0.0/24", "fd01::/64"] },
    is: { podCIDRs: ["10.1.0.0/24", "fd01::/64"] },
  },
  {
    rule: "podCIDR is used where podCIDRs is absent",
    spec: { podCIDR: "10.1.0.5/24" },
    is: { podCIDRs: ["10.1.0.0/24"] },
  },
  {
    rule: "a Node being deleted is not eligible",
    metadata: { deletionTimestamp: "2024-01-01T00:00:00Z" },
    is: { isEligible: false },
  },
  {
    rule: "a Node with the autoscaler's removal taint is not eligible",
    spec: { taints: [{ key: "a" }, { key: "ToBeDeletedByClusterAutoscaler" }] },
    is: { isEligible: false },
  },
  {
    rule: "another taint does not matter",
    metadata: { deletionTimestamp: null },
    spec: { taints: [{ key: "a" }] },
    is: {},
  },
])("Node: $rule", ({ is, ...parts }) => {
  expect(decode(parts)).toEqual({ kind: "ok", value: node("n1", is), notes: [], skipped: [] });
});

test("Node: internal addresses come first, and host names and invalid addresses are ignored", () => {
  const addresses = [
    { type: "ExternalIP", address: "192.0.2.1" },
    { type: "Hostname", address: "n1" },
    { type: "InternalIP", address: "10.9.0.1" },
    { type: "InternalIP", address: "FD09::1" },
    { type: "InternalIP", address: "n1.internal" },
    { type: "ExternalIP", address: "10.9.0.1" },
  ];
  expect(decode({ status: { addresses } })).toMatchObject({
    value: { addresses: ["10.9.0.1", "fd09::1", "192.0.2.1"] },
    notes: ['InternalIP "n1.internal" ignored: not an IP address'],
  });
});

test.each([
  { what: "a list in place of an object", object: [], at: "" },
  { what: "a missing name", object: { metadata: {} }, at: "metadata.name" },
  {
    what: "an invalid pod CIDR",
    object: { metadata: { name: "n" }, spec: { podCIDRs: ["10.1.0.0"] } },
    at: "spec.podCIDRs[0]",
  },
  { what: "a label that is a number", object: { metadata: { name: "n", labels: { a: 1 } } }, at: "metadata.labels.a" },
])("Node: $what is invalid, and the problem names the field", ({ object, at }) => {
  const decoded = decodeNode(object, options);
  expect([decoded.kind, decoded.kind === "bad" && showPath(decoded.path)]).toEqual(["bad", at]);
});
