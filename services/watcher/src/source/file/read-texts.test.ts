import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "vitest";
import { makeRandom, makeRandomBelow } from "../../testing/random.ts";
import { makeDecodeOptions } from "../decode/decode-options.ts";
import { showPlace } from "./input-result.ts";
import { readTexts } from "./read-texts.ts";

const options = makeDecodeOptions();

function read(...texts: readonly string[]) {
  return readTexts(
    texts.map((text, index) => ({ file: `${"abc"[index]}.yaml`, text })),
    options,
  );
}

function readGood(...texts: readonly string[]) {
  const result = read(...texts);
  assert.equal(result.kind, "ok", JSON.stringify(result));
  return {
    ...result,
    services: result.objects.services ?? [],
    slices: result.objects.slices ?? [],
    nodes: result.objects.nodes ?? [],
  };
}

function problemsOf(...texts: readonly string[]): readonly string[] {
  const result = read(...texts);
  return result.kind === "ok" ? [] : result.problems.map((problem) => `${showPlace(problem)}: ${problem.problem}`);
}

const input = readFileSync("test/fixtures/kpng/input.yaml", "utf8");
const toFile = readFileSync("test/fixtures/kpng/to-file.yaml", "utf8");

/** The Services of a state file whose only Service has these endpoints. */
function state(...endpoints: readonly string[]): string {
  return ["services:", "- service: {name: web}", "  endpoints:", ...endpoints.map((line) => `  - ${line}`), ""].join(
    "\n",
  );
}

test("state: KPNG's own input and what KPNG wrote of it are the same cluster", () => {
  const byPod = (text: string) => {
    const { services, slices, nodes } = readGood(text);
    const sorted = slices.map((slice) => ({
      ...slice,
      endpoints: slice.endpoints.toSorted((a, b) => (a.addresses.v4[0] ?? "").localeCompare(b.addresses.v4[0] ?? "")),
    }));
    return {
      services: services.toSorted((a, b) => a.name.localeCompare(b.name)),
      sorted,
      nodes: nodes.map((node) => node.name),
    };
  };
  const fromInput = byPod(input);
  assert.deepEqual(fromInput, byPod(toFile));
  assert.deepEqual(fromInput.sorted[0]?.endpoints[0], {
    addresses: { v4: ["10.1.0.1"], v6: ["fd01::1"] },
    ports: [
      { name: "http", port: 8080 },
      { name: "dns", port: 5353 },
    ],
    conditions: { ready: true, serving: true, terminating: false },
    podName: "web-1",
    hostname: "h1",
    nodeName: "n1",
    zone: "za",
    hintedZones: [],
    hintedNodes: [],
  });
});

test("state: the least Service and Node take KPNG's defaults; an absent set of IPs stays absent", () => {
  const { services, nodes, slices } = readGood(
    "nodes: [{name: n1}]\nservices: [{service: {name: web, ports: [{port: 80}]}}]",
  );
  assert.deepEqual(nodes, [
    { name: "n1", zone: "", labels: {}, annotations: {}, addresses: [], podCIDRs: [], isEligible: true },
  ]);
  assert.deepEqual(slices, []);
  assert.deepEqual(services, [
    {
      namespace: "default",
      name: "web",
      type: "ClusterIP",
      proxyName: "",
      labels: {},
      annotations: {},
      isHeadless: false,
      clusterIPs: undefined,
      externalIPs: undefined,
      loadBalancerIPs: undefined,
      proxyModeLoadBalancerIPs: { v4: [], v6: [] },
      ipFilters: [],
      mapIP: false,
      ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 0, targetPort: 0 }],
      internalTrafficPolicy: "Cluster",
      externalTrafficPolicy: "Cluster",
      clientIPAffinitySeconds: undefined,
      healthCheckNodePort: 0,
    },
  ]);
});

test("state: null is the same as absent, everywhere", () => {
  const text = `nodes: null
services:
- service: {name: web, namespace: null, type: null, labels: null, ips: null, ipfilters: null, ports: null, sessionaffinity: null}
  endpoints:
  - {podname: null, endpoint: {ips: {v4: [10.1.0.1], v6: null}, portoverrides: null, scopes: null}, conditions: null, topology: null, hints: null}
- service: {name: b, ips: {clusterips: null, externalips: null, loadbalancerips: null}, sessionaffinity: {clientip: null}}
  endpoints: null
`;
  const { services, slices } = readGood(text);
  assert.equal(services[0]?.namespace, "default");
  assert.equal(slices[0]?.endpoints[0]?.conditions.ready, true);
});

test("state: session affinity is read, which stopped KPNG", () => {
  const { services } = readGood("services: [{service: {name: a, sessionaffinity: {clientip: {timeoutseconds: 60}}}}]");
  assert.equal(services[0]?.clientIPAffinitySeconds, 60);
});

test("state: our own keys say what KPNG's cannot", () => {
  const { services, slices, nodes } = readGood(`
nodes: [{name: n1, addresses: [10.9.0.1], podcidrs: [10.1.0.0/24], iseligible: false}]
services:
- service: {name: web, proxyname: other, proxymodeloadbalancerips: {v4: [192.0.2.1]}}
  endpoints:
  - endpoint: {ips: {v4: [10.1.0.1]}, portoverrides: [{name: a, port: 1, protocol: 2}]}
    conditions: {ready: false, serving: true, terminating: true}
    hints: {zones: [b, a], nodes: [n2, n1]}
`);
  assert.deepEqual(nodes[0], {
    name: "n1",
    zone: "",
    labels: {},
    annotations: {},
    addresses: ["10.9.0.1"],
    podCIDRs: ["10.1.0.0/24"],
    isEligible: false,
  });
  assert.equal(services[0]?.proxyName, "other");
  assert.deepEqual(services[0]?.proxyModeLoadBalancerIPs.v4, ["192.0.2.1"]);
  const [endpoint] = slices[0]?.endpoints ?? [];
  assert.deepEqual(endpoint?.conditions, { ready: false, serving: true, terminating: true });
  assert.deepEqual(endpoint?.ports, [{ name: "a", port: 1, protocol: "UDP" }]);
  assert.deepEqual(
    [endpoint?.hintedZones, endpoint?.hintedNodes],
    [
      ["a", "b"],
      ["n1", "n2"],
    ],
  );
});

test("state: an endpoint belongs to the Service it stands under, and to the source that it names", () => {
  const { slices } = readGood(
    state(
      "{namespace: x, servicename: y, podname: p1, endpoint: {ips: {v4: [10.1.0.1]}}}",
      "{sourcename: web, podname: p2, endpoint: {ips: {v4: [10.1.0.2]}}}",
      "{sourcename: web-abc, podname: p1, endpoint: {ips: {v4: [10.1.0.3]}}}",
    ),
  );
  assert.deepEqual(
    slices.map(({ namespace, serviceName, name, hasPodKeys, endpoints }) => [
      namespace,
      serviceName,
      name,
      hasPodKeys,
      endpoints.length,
    ]),
    [
      ["default", "web", "web", true, 2],
      ["default", "web", "web-abc", false, 1],
    ],
  );
});

test("state: a pod that is there again gets a slice of its own, so that no key is there twice", () => {
  const again = (address: string) => `{podname: p1, endpoint: {ips: {v4: [${address}]}}}`;
  const { slices } = readGood(
    state(again("10.1.0.1"), again("10.1.0.2"), again("10.1.0.3"), "{endpoint: {ips: {v4: [10.1.0.4]}}}"),
  );
  assert.deepEqual(
    slices.map(({ name, hasPodKeys, endpoints }) => [
      name,
      hasPodKeys,
      endpoints.map((endpoint) => endpoint.addresses.v4[0]),
    ]),
    [
      ["web", true, ["10.1.0.1", "10.1.0.4"]],
      ["web~2", false, ["10.1.0.2"]],
      ["web~3", false, ["10.1.0.3"]],
    ],
  );
});

test("state: conditions without ready are not ready, as in KPNG", () => {
  const { slices } = readGood(state("{endpoint: {ips: {v4: [10.1.0.1]}}, conditions: {}}"));
  assert.deepEqual(slices[0]?.endpoints[0]?.conditions, { ready: false, serving: false, terminating: false });
});

test("state: an endpoint without address is left out, and said", () => {
  const { slices, notes } = readGood(state("{podname: p1}"));
  assert.deepEqual(slices, []);
  assert.deepEqual(
    notes.map((note) => note.note),
    ["services[0].endpoints[0]: the endpoint is left out: it has no address"],
  );
});

const manifests = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-a, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.1]}]
ports: [{name: "", port: 8080}]
---
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: apps/v1
kind: Deployment
---
apiVersion: apps/v1
kind: Deployment
---
apiVersion: serving.knative.dev/v1
kind: Service
`;

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

const badTable: readonly { name: string; texts: readonly string[]; problems: readonly (string | RegExp)[] }[] = [
  {
    name: "an unknown key",
    texts: ["services:\n- service:\n    name: a\n    clusterip: x\n"],
    problems: ['a.yaml:4: services[0].service.clusterip: unknown key "clusterip"'],
  },
  {
    name: "two unknown keys",
    texts: ["nodes: []\nfoo: 1\nbar: 2\n"],
    problems: ['a.yaml:2: foo: unknown key "foo"', 'a.yaml:3: bar: unknown key "bar"'],
  },
  {
    name: "a key in capitals",
    texts: ["services:\n- Service: {}\n"],
    problems: [/a\.yaml:2.*services\[0\]\.service: .*expected object/, /unknown key "Service"/],
  },
  {
    name: "neither format",
    texts: ["foo: 1\n"],
    problems: [/a\.yaml:1: neither a Kubernetes object .* nor a KPNG state file/],
  },
  { name: "a list of nothing", texts: ["- 1\n"], problems: [/neither/] },
  { name: "a text", texts: ["hello\n"], problems: [/neither/] },
  { name: "an apiVersion without kind", texts: ["apiVersion: v1\n"], problems: ["a.yaml:1: the object has no kind"] },
  { name: "a kind that is a number", texts: ["kind: 1\n"], problems: ["a.yaml:1: the object has kind 1"] },
  {
    name: "items that are no list",
    texts: ["kind: List\nitems: 7\n"],
    problems: ["a.yaml:2: items: items is no list but 7"],
  },
  {
    name: "an item that is null",
    texts: ["kind: List\nitems:\n- null\n"],
    problems: ["a.yaml:3: items[0]: null is no Kubernetes object"],
  },
  {
    name: "a bad field deep in a list",
    texts: ["kind: List\nitems:\n- kind: Service\n  metadata:\n    name: a\n  spec:\n    externalIPs:\n    - 10.0.0\n"],
    problems: ['a.yaml:8: items[0].spec.externalIPs[0]: "10.0.0" is no IP address'],
  },
  {
    name: "the same in JSON",
    texts: ['{"kind":"List","items":[\n{"kind":"Node","metadata":{\n"name":""}}]}'],
    problems: [/^a\.yaml:3: items\[0\]\.metadata\.name: "" is no name/],
  },
  {
    name: "an address of the wrong family",
    texts: [state("{endpoint: {ips: {v6: [10.1.0.1]}}}")],
    problems: [/services\[0\]\.endpoints\[0\]\.endpoint\.ips\.v6\[0\]: "10\.1\.0\.1" is no address of family v6/],
  },
  {
    name: "an invalid address",
    texts: [state("{endpoint: {ips: {v4: [10.1]}}}")],
    problems: [/expected string, received number|"10.1" is no IP address/],
  },
  {
    name: "an invalid CIDR",
    texts: ["services: [{service: {name: a, ipfilters: [{sourceranges: [10.0.0.0/33]}]}}]"],
    problems: [/"10\.0\.0\.0\/33" is no CIDR/],
  },
  {
    name: "a protocol of words",
    texts: ["services: [{service: {name: a, ports: [{port: 1, protocol: TCP}]}}]"],
    problems: [/ports\[0\]\.protocol: .*expected number/],
  },
  { name: "a name with a slash", texts: ["services: [{service: {name: a/b}}]"], problems: [/"a\/b" is no name/] },
  {
    name: "affinity for ever",
    texts: ["services: [{service: {name: a, sessionaffinity: {clientip: {timeoutseconds: 86401}}}}]"],
    problems: [/86401 is no whole number/],
  },
  {
    name: "an unknown affinity",
    texts: ["services: [{service: {name: a, sessionaffinity: {cookie: {}}}}]"],
    problems: [/unknown key "cookie"/],
  },
  {
    name: "a Service twice in two files",
    texts: ["kind: Service\nmetadata: {name: a}\n", "services:\n- service: {name: b}\n- service: {name: a}\n"],
    problems: ["b.yaml:3:3: Service default/a is also at a.yaml:1:1"],
  },
  {
    name: "a Node twice",
    texts: ["nodes:\n- name: a\n- name: a\n"],
    problems: ["a.yaml:3: Node a is also at a.yaml:2"],
  },
  {
    name: "a slice twice",
    texts: [manifests, manifests],
    problems: [/Service shop\/web is also at a\.yaml/, /EndpointSlice shop\/web\/web-a is also/, /Node n1/],
  },
  {
    name: "a slice under two Services",
    texts: [manifests, manifests.split("---\n")[1]?.replace("service-name: web", "service-name: b") ?? ""],
    problems: [/EndpointSlice shop\/web-a is also at/],
  },
  { name: "truncated YAML", texts: [`${input.slice(0, 300)}`], problems: [/./] },
  { name: "good files beside a bad one", texts: [manifests, input, "foo: 1"], problems: [/^c\.yaml/] },
];

for (const { name, texts, problems } of badTable) {
  test(`bad input: ${name}`, () => {
    const found = problemsOf(...texts);
    assert.notEqual(found.length, 0);
    for (const expected of problems) {
      const isThere = found.some((problem) =>
        typeof expected === "string" ? problem === expected : expected.test(problem),
      );
      assert.ok(isThere, `no ${expected} among ${JSON.stringify(found, null, 1)}`);
    }
  });
}

test("bad input: a thousand problems are told as twenty and a count", () => {
  const found = problemsOf(`services:\n${"- service: {name: a, x: 1}\n".repeat(1_000)}`);
  assert.equal(found.length, 21);
  assert.equal(found[20], "a.yaml: 980 more");
});

test("a file mutated at random is read or refused, and never throws", () => {
  const random = makeRandomBelow(makeRandom(7));
  const pieces = [
    ..." \n:-#'\"|>[]{}&*!?,%@`~0a.\t\0\r\ufeff\u2028",
    "\n---\n",
    "\n...\n",
    "&a ",
    "*a",
    "null",
    "  ",
    "!!binary ",
    "<<: ",
    "9e99",
  ];
  for (let round = 0; round < 500; round++) {
    let text = [input, toFile, manifests][round % 3] ?? "";
    for (let change = 0; change <= random(6); change++) {
      const at = random(text.length);
      text = text.slice(0, at) + (pieces[random(pieces.length)] ?? "") + text.slice(at + random(5));
    }
    if (random(10) === 0) text = text.slice(0, random(text.length));
    assert.match(read(text).kind, /^(?:ok|bad)$/);
  }
});
