import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { makeDecodeOptions } from "../../decode/decoded.ts";
import { readInput } from "../read-inputs.ts";

const options = makeDecodeOptions();

/** Reads texts as if they were the files `a.yaml`, `b.yaml`, `c.yaml`. */
export function read(...texts: readonly string[]) {
  const files = texts.map((text, index) => ({ file: `${"abc"[index]}.yaml`, text }));
  return readInput({ texts: files, failures: [] }, options);
}

/** The same, for valid texts. */
export function readGood(...texts: readonly string[]) {
  const result = read(...texts);
  assert.equal(result.kind, "ok", JSON.stringify(result));
  return {
    ...result,
    services: result.objects.services ?? [],
    slices: result.objects.slices ?? [],
    nodes: result.objects.nodes ?? [],
  };
}

/** A state file of KPNG, and the file that KPNG wrote after reading it. */
export const input = readFileSync("test/fixtures/kpng/input.yaml", "utf8");
export const toFile = readFileSync("test/fixtures/kpng/to-file.yaml", "utf8");

/** State file with one Service that has these endpoints. */
export function state(...endpoints: readonly string[]): string {
  return ["services:", "- service: {name: web}", "  endpoints:", ...endpoints.map((line) => `  - ${line}`), ""].join(
    "\n",
  );
}

/** Manifests of a Service, its slice, a Node, and kinds that no proxy needs. */
export const manifests = `apiVersion: v1
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
