import { readFileSync } from "node:fs";
import { noAddresses } from "@kpng/model/address.ts";
import type { ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import { endpoint as makeEndpoint, service as makeService } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import { formatServiceLine, formatViewLines } from "./kpng-json.ts";

const plain = makeService("d/s", { ips: [] }).service;
const service: Service = { ...plain, clusterIPs: undefined, externalIPs: undefined, ports: [] };

const endpoint: ViewEndpoint = {
  ...makeEndpoint("10.1.0.1", { key: "k", scopes: { internal: false, external: false } }),
  addresses: noAddresses,
};

function line(change: Partial<Service>, endpoints: ServiceView["endpoints"] = []): string {
  return formatServiceLine({ service: { ...service, ...change }, endpoints });
}

// Expected values were printed by encoding/json of Go 1.26 from structs with the fields and tags of the original's.
const cases: { name: string; actual: string; json: string }[] = [
  {
    name: "zero values are left out, but for SessionAffinity and Endpoints",
    actual: line({}),
    json: '{"Service":{"Namespace":"d","Name":"s","Type":"ClusterIP","IPs":{},"SessionAffinity":null},"Endpoints":null}',
  },
  {
    name: "an empty set of addresses is an object, an undefined one is absent; sets are sorted bytewise",
    actual: line({ clusterIPs: noAddresses, externalIPs: { v4: ["10.0.0.9", "10.0.0.10"], v6: [] }, isHeadless: true }),
    json: '{"Service":{"Namespace":"d","Name":"s","Type":"ClusterIP","IPs":{"ClusterIPs":{},"ExternalIPs":{"V4":["10.0.0.10","10.0.0.9"]},"Headless":true},"SessionAffinity":null},"Endpoints":null}',
  },
  {
    name: "keys of maps are sorted, and HTML is escaped",
    actual: line({ labels: { b: "a", a: "<b>&", x: '\u2028\u2029é\b\f\n\t\u0001\u007f"\\/' } }),
    json: '{"Service":{"Namespace":"d","Name":"s","Type":"ClusterIP","Labels":{"a":"\\u003cb\\u003e\\u0026","b":"a","x":"\\u2028\\u2029é\\b\\f\\n\\t\\u0001\u007f\\"\\\\/"},"IPs":{},"SessionAffinity":null},"Endpoints":null}',
  },
  {
    name: "all other fields come in the order of the struct",
    actual: line({
      annotations: { a: "b" },
      ipFilters: [{ targetIPs: { v4: ["1.2.3.4"], v6: [] }, sourceRanges: ["10.0.0.0/8"] }],
      mapIP: true,
      ports: [{ name: "p", protocol: "SCTP", port: 1, nodePort: 2, targetPort: "t" }],
      internalTrafficPolicy: "Local",
      externalTrafficPolicy: "Local",
      clientIPAffinitySeconds: 10_800,
      healthCheckNodePort: 3,
    }),
    json: '{"Service":{"Namespace":"d","Name":"s","Type":"ClusterIP","Annotations":{"a":"b"},"IPs":{},"IPFilters":[{"TargetIPs":{"V4":["1.2.3.4"]},"SourceRanges":["10.0.0.0/8"]}],"MapIP":true,"Ports":[{"Name":"p","Protocol":3,"Port":1,"NodePort":2,"TargetPortName":"t"}],"ExternalTrafficToLocal":true,"SessionAffinity":{"ClientIP":{"TimeoutSeconds":10800}},"InternalTrafficToLocal":true,"HealthCheckNodePort":3},"Endpoints":null}',
  },
  {
    name: "an endpoint in no scope, which KPNG does not know, is left out",
    actual: line({}, [endpoint]),
    json: '{"Service":{"Namespace":"d","Name":"s","Type":"ClusterIP","IPs":{},"SessionAffinity":null},"Endpoints":null}',
  },
  {
    name: "the protocol of an endpoint's ports, which KPNG does not know, is left out",
    actual: line({}, [
      {
        ...endpoint,
        scopes: { internal: true, external: false },
        hostname: "h",
        isOnNode: true,
        ports: [{ name: "", port: 80, protocol: "UDP" }],
      },
    ]),
    json: '{"Service":{"Namespace":"d","Name":"s","Type":"ClusterIP","IPs":{},"SessionAffinity":null},"Endpoints":[{"Hostname":"h","IPs":{},"Local":true,"PortOverrides":[{"Port":80}],"Scopes":{"Internal":true}}]}',
  },
];

test.each(cases)("$name", ({ actual, json }) => {
  expect(actual).toBe(json);
});

test("the README of kpng-json explains each field", () => {
  const readme = readFileSync(new URL("../../../backend-json/README.md", import.meta.url), "utf8");
  const fields = new Set(cases.flatMap(({ json }) => json.match(/"[A-Z]\w+":/g) ?? []));
  expect(fields.size).toBeGreaterThan(30);
  const missing = [...fields].map((field) => field.slice(1, -2)).filter((name) => !readme.includes(name));
  expect(missing).toEqual([]);
});

test("lines ascend by namespace before name, although a dash is less than a slash", () => {
  const services = new Map(
    (["a-b/x", "a/x"] as const).map((key) => {
      const [namespace = "", name = ""] = key.split("/");
      return [key, { service: { ...service, namespace, name }, endpoints: [] }];
    }),
  );
  const names = [...formatViewLines({ nodeName: "n", services })].map((text) => JSON.parse(text).Service.Namespace);
  expect(names).toEqual(["a", "a-b"]);
});
