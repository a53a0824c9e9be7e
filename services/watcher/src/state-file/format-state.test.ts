import assert from "node:assert/strict";
import type { Service } from "@kpng/model/service.ts";
import { input, readGood, toFile } from "@kpng/source/file/testing/texts.ts";
import type { ClusterObjects } from "@kpng/source/source.ts";
import { addresses, draining, endpoint, node, service, servicePort, slice } from "@kpng/source/testing/build.ts";
import { CORE_SCHEMA, load, YAML11_SCHEMA } from "js-yaml";
import { test } from "vitest";
import { formatState } from "./format-state.ts";

const read = (text: string): ClusterObjects => readGood(text).objects;

/** Objects without what the format does not preserve: the order of objects, and undefined fields. */
function normal(objects: ClusterObjects): unknown {
  const byText = (a: unknown, b: unknown) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
  const slices = objects.slices?.map((each) => ({ ...each, endpoints: [...each.endpoints].sort(byText) }));
  return JSON.parse(
    JSON.stringify({
      services: [...(objects.services ?? [])].sort(byText),
      slices: slices?.sort(byText),
      nodes: [...(objects.nodes ?? [])].sort(byText),
    }),
  );
}

test.each([
  ["input.yaml", input],
  ["to-file.yaml", toFile],
])("%s: the output equals that of KPNG byte for byte", (_file, text) => {
  assert.equal(formatState(read(text)), toFile);
});

const odd: ClusterObjects = {
  services: [
    service({
      name: "full",
      proxyName: "yes",
      labels: { "example.com/a": "true", b: "x: y # z", "": "-" },
      annotations: { note: 'line\n"two"\t\u0085', n: "1:20" },
      externalIPs: undefined,
      loadBalancerIPs: addresses("2001:db8::1"),
      proxyModeLoadBalancerIPs: addresses("192.0.2.9"),
      ipFilters: [
        { sourceRanges: ["10.0.0.0/8", "2001:db8::/32"] },
        { targetIPs: addresses("192.0.2.1"), sourceRanges: [] },
      ],
      mapIP: true,
      ports: [
        servicePort({ name: "on", protocol: "SCTP", nodePort: 2, targetPort: "0x1" }),
        servicePort({ name: "", protocol: "UDP", targetPort: 0 }),
      ],
      internalTrafficPolicy: "Local",
      externalTrafficPolicy: "Local",
      clientIPAffinitySeconds: 60,
      healthCheckNodePort: 32_000,
    }),
    service({ name: "1.5", clusterIPs: undefined, isHeadless: true, type: "ExternalName" }),
  ],
  slices: [
    slice(
      [
        endpoint("10.1.0.1", { podName: "p", conditions: draining }),
        endpoint(["10.1.0.3", "10.1.0.2"], { zone: "null", hintedZones: ["a"], hintedNodes: ["n1"] }),
        endpoint("10.1.0.4", { ports: [{ name: "a", port: 1 }], hintedNodes: ["n1"], hostname: "1e3", nodeName: "" }),
      ],
      { name: "full-abc", serviceName: "full" },
    ),
    slice([endpoint("fd01::1", { podName: "p" })], { name: "full", serviceName: "full", hasPodKeys: true }),
    slice([endpoint("fd01::1", { podName: "p" })], { name: "full~2", serviceName: "full", hasPodKeys: false }),
  ],
  nodes: [
    node("n1", {
      ...{ zone: "2001-01-01", labels: { a: "" }, annotations: { b: "~" }, isEligible: false },
      ...{ addresses: ["10.9.0.1"], podCIDRs: ["10.1.0.0/24"] },
    }),
    node("n2"),
  ],
};

test.each(["yaml", "json"] as const)("a state written as %s is read back unchanged", (format) => {
  assert.deepEqual(normal(read(formatState(odd, format))), normal(odd));
});

test("creation and UID are written only for Services that share an address, because KPNG rejects such keys", () => {
  const age = { createdSeconds: 1_714_564_800, uid: "0b1c" };
  const owner = service({ ...age, name: "a", clusterIP: "10.96.0.1" });
  const rival = service({ ...age, name: "b", clusterIP: "10.96.0.2", externalIPs: addresses("10.96.0.1") });
  const alone = service({ ...age, name: "c", clusterIP: "10.96.0.3" });
  const { createdSeconds: _created, uid: _uid, ...ageless } = alone;
  const state = (...services: Service[]) => ({ services, slices: [], nodes: [] });
  assert.deepEqual(normal(read(formatState(state(owner, rival, alone)))), normal(state(owner, rival, ageless)));
});

test("the output does not depend on the order of the objects", () => {
  const turned = {
    services: odd.services?.toReversed(),
    slices: odd.slices?.map((each) => ({ ...each, endpoints: each.endpoints.toReversed() })).toReversed(),
    nodes: odd.nodes?.toReversed(),
  };
  assert.equal(formatState(turned), formatState(odd));
});

test("an empty state has two empty lists", () => {
  assert.equal(formatState({}), "nodes: []\nservices: []\n");
});

test("texts that YAML 1.1 or 1.2 could take for something else are read back unchanged as both", () => {
  const texts = [
    ...["", "a", "yes", "1", "1.5", "a:b", "a: b", "#", "'", '"', "null", "~", "- x", "{}", "a\\n", " a ", "0x1F", "y"],
    ...["a b", "\u0085", "\u007f", "\ufeffx", "é\u2028", "a\nb", "\\", "😀", "10.0.0.1", "fd00::1", "::1", "NULL"],
    ...["a:", "1:20", "2001-01-01", "0o7", "=", "<<", "1e3", ".inf"],
  ];
  const annotations = Object.fromEntries(texts.map((text) => [text, text]));
  for (const schema of [CORE_SCHEMA, YAML11_SCHEMA]) {
    const state = load(formatState({ nodes: [node("n1", { annotations })] }), { schema });
    assert.deepEqual((state as { nodes: { annotations: unknown }[] }).nodes[0]?.annotations, annotations);
  }
});
