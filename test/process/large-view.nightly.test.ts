import { writeFileSync } from "node:fs";
import { watchBatches } from "@kpng/backend-kit/receive/follow-view.ts";
import { ItemDigests } from "@kpng/backend-kit/receive/item-digests.ts";
import { defaultViewBytes } from "@kpng/backend-kit/receive/item-limits.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { expect, test } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import { kpngMain, usePrograms } from "./programs.ts";

const programs = usePrograms();
const mebibyte = 1024 * 1024;

/** The heap limit that the sizing guide names for 250 000 endpoints, in MiB. */
const heapMebibytes = 1_536;
const [services, endpointsPerService, nodes] = [2_500, 100, 1_000];

/** Writes the manifests as JSON: the file source refuses YAML of this size. */
function writeManifests(path: string): void {
  const names = Array.from({ length: services }, (_, index) => `service-${index}`);
  const metadata = { namespace: "ns" };
  const ports = [{ name: "http", port: 80 }];
  const items = names.flatMap((name, at) => {
    const endpoints = Array.from({ length: endpointsPerService }, (_, pod) => {
      const number = at * endpointsPerService + pod;
      const address = `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`;
      const targetRef = { kind: "Pod", name: `${name}-6f7c9b8d4-${pod}` };
      return { addresses: [address], targetRef, nodeName: `node-${number % nodes}`, conditions: { ready: true } };
    });
    const clusterIP = `172.16.${at >> 8}.${at & 255}`;
    return [
      { apiVersion: "v1", kind: "Service", metadata: { ...metadata, name }, spec: { clusterIP, ports } },
      {
        ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4", endpoints, ports },
        metadata: { ...metadata, name: `${name}-a`, labels: { "kubernetes.io/service-name": name } },
      },
    ];
  });
  const nodeList = Array.from({ length: nodes }, (_, index) => {
    return { apiVersion: "v1", kind: "Node", metadata: { name: `node-${index}` } };
  });
  writeFileSync(path, JSON.stringify({ apiVersion: "v1", kind: "List", items: [...items, ...nodeList] }));
}

test("a watcher with the memory of the sizing guide serves a view of 250 000 endpoints, and a backend accepts it", {
  timeout: 400_000,
}, async () => {
  const [port = 0, healthPort = 0] = await freePorts(2);
  const path = programs.at("manifests.json");
  writeManifests(path);
  const options = ["--listen", `tcp://127.0.0.1:${port}`, "--healthz-bind-address", `127.0.0.1:${healthPort}`];
  programs.start(kpngMain, ["file", "-i", path, "to-api", ...options], {
    NODE_OPTIONS: `--max-old-space-size=${heapMebibytes}`,
  });
  const isReady = async (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${healthPort}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  await expect.poll(isReady, { timeout: 240_000, interval: 200 }).toBe(true);
  const digests = new ItemDigests();
  const view = { transport: dial({ api: `127.0.0.1:${port}` }), nodeName: "node-7", digests };
  const stop = new AbortController();
  const batches = watchBatches({ ...view, maxViewBytes: defaultViewBytes(512 * mebibyte) }, stop.signal);
  const { value } = await batches.next();
  stop.abort();
  const endpoints = value?.changes.flatMap((change) =>
    change.kind === "put-endpoint" ? [`${change.service}/${change.endpoint.key}`] : [],
  );
  expect(new Set(endpoints).size).toBe(services * endpointsPerService);
});
