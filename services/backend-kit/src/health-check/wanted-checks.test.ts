import { endpoint, type ServiceParts, service, view } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import { wantedChecks } from "./wanted-checks.ts";

const loadBalancer: ServiceParts = {
  type: "LoadBalancer",
  externalTrafficPolicy: "Local",
  healthCheckNodePort: 31_000,
  ips: ["10.96.0.10", "fd00::10"],
};
const here = { isOnNode: true };
const draining = { ...here, conditions: { ready: false, serving: true, terminating: true } };

const cases: { name: string; parts: ServiceParts; checks: string[] }[] = [
  { name: "a Service has one check per family", parts: {}, checks: ["v4:31000 0", "v6:31000 0"] },
  { name: "a Service of one family has one check", parts: { ips: ["10.96.0.10"] }, checks: ["v4:31000 0"] },
  { name: "a Service without the port has no check", parts: { healthCheckNodePort: 0 }, checks: [] },
  {
    name: "a Service with policy Cluster has no check, even with the port",
    parts: { externalTrafficPolicy: "Cluster" },
    checks: [],
  },
  { name: "a Service of another type than LoadBalancer has no check", parts: { type: "NodePort" }, checks: [] },
  {
    name: "each address counts once, in its family, if it is on the node and ready",
    parts: {
      endpoints: [
        endpoint("10.1.0.1", here),
        endpoint("10.1.0.1", { ...here, key: "other-port" }),
        endpoint("10.1.0.2", here),
        endpoint("10.1.0.3", draining),
        endpoint("10.1.0.4"),
        endpoint("fd00:1::1", here),
      ],
    },
    checks: ["v4:31000 2", "v6:31000 1"],
  },
];

test.each(cases)("$name", ({ parts, checks }) => {
  const wanted = wantedChecks(view([service("a/web", { ...loadBalancer, ...parts })]), "a/web");
  expect(wanted.map(({ family, port, localEndpoints }) => `${family}:${port} ${localEndpoints}`)).toEqual(checks);
});
