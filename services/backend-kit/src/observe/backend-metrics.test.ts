import { create, toBinary } from "@bufbuild/protobuf";
import {
  EndpointSchema,
  OpItemSchema,
  ServiceSchema,
  type Protocol as WireProtocol,
  Set as WireSet,
} from "@kpng/model/gen/localv1/api_pb.ts";
import type { ViewChange } from "@kpng/model/node-view.ts";
import { view } from "@kpng/model/testing/views.ts";
import { decodeLocalOp } from "@kpng/model/wire/local-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { formatServiceLine } from "../state/kpng-json.ts";
import { createReadableLog } from "../testing/steps.ts";
import { syncUpdate } from "../testing/sync-update.ts";
import { ConnectionObserver, createBackendMetrics, observeKnownNode, observeSyncs } from "./backend-metrics.ts";

function start() {
  const { log, lines } = createReadableLog();
  const [health, metrics] = [new Health(), new Registry()];
  const reportNode = observeKnownNode({ nodeName: "n1", health, log, metrics });
  const report = async (isKnown: boolean, instance = "run") => {
    const known = view([]);
    reportNode({ view: isKnown ? known : { ...known, node: undefined }, instance });
    const reason = health.parts.get("node")?.reason;
    return {
      isReady: health.isReady,
      reason,
      gauge: (await metrics.metrics()).match(/^kpng_backend_node_known (\d)/m)?.[1],
    };
  };
  return { report, lines };
}

test("a Node that the cluster does not have is logged once, and named in health and metrics without failing them", async () => {
  const { report, lines } = start();
  const unknown = { isReady: true, reason: "the cluster has no Node of this name: check --node-name", gauge: "0" };
  expect(await report(false)).toEqual(unknown);
  expect(await report(false)).toEqual(unknown);
  expect(lines).toMatchObject([{ level: "error", msg: "the cluster has no Node of this name", nodeName: "n1" }]);
  expect(await report(true)).toEqual({ isReady: true, reason: "", gauge: "1" });
});

test("the applied revision includes updates without changes, e.g. of a restarted watcher", async () => {
  const registry = new Registry();
  const observer = observeSyncs(createBackendMetrics(registry));
  observer.settled?.(syncUpdate({ revision: 3n, instance: "second" }));
  expect(await registry.metrics()).toContain("kpng_backend_revision 3\n");
});

test("a Go watcher sends no Nodes, so nothing is reported", async () => {
  const { report, lines } = start();
  expect(await report(false, "")).toEqual({ isReady: false, reason: undefined, gauge: "1" });
  expect(lines).toEqual([]);
});

test.each([
  { state: { kind: "diverged" }, counts: "view_divergences_total" },
  { state: { kind: "older" }, counts: 'older_states_total{result="accepted"}' },
  { state: { kind: "behind", reason: "older" }, counts: 'older_states_total{result="refused"}' },
  { state: { kind: "lost", reason: "reset" }, counts: "reconnects_total" },
] as const)("a connection that is $state.kind is counted, and only there", async ({ state, counts }) => {
  const metrics = new Registry();
  new ConnectionObserver(new Health(), createBackendMetrics(metrics), createReadableLog().log).report(state);
  const counted = (await metrics.metrics()).match(/^kpng_backend_\w+_total\S* 1$/gm);
  expect(counted).toEqual([`kpng_backend_${counts} 1`]);
});

/** A protocol of a newer watcher; the last one that this version knows is 3. */
const quic = 4 as WireProtocol;
const hasEndpoints = { V4: true, V6: false };

function received(set: WireSet, path: string, bytes: Uint8Array): ViewChange {
  const op = decodeLocalOp(
    create(OpItemSchema, { Op: { case: "Set", value: { Ref: { Set: set, Path: path }, Bytes: bytes } } }),
  );
  if (op.kind !== "change") throw new Error(`${op.kind} is no change`);
  return op.change;
}

function putService(ports: readonly { readonly Name: string; readonly Protocol: WireProtocol }[]) {
  const message = create(ServiceSchema, {
    Namespace: "a",
    Name: "web",
    Type: "ClusterIP",
    Ports: ports.map((port) => ({ ...port, Port: 443, TargetPort: 8443, HasEndpoints: hasEndpoints })),
  });
  const change = received(WireSet.ServicesSet, "a/web", toBinary(ServiceSchema, message));
  if (change.kind !== "put-service") throw new Error(`${change.kind} puts no Service`);
  return change;
}

const both = [
  { Name: "quic", Protocol: quic },
  { Name: "https", Protocol: 1 },
] as const;

test("a port with an unknown protocol is not served, and the others are", () => {
  const { service, portHasEndpoints } = putService(both).item;
  expect(service.ports).toMatchObject([{ name: "https", protocol: "TCP" }]);
  expect(service.unknownPorts).toMatchObject([{ name: "quic", protocol: 4, port: 443, targetPort: 8443 }]);
  expect(portHasEndpoints).toEqual([{ v4: true, v6: false }]);
  expect(putService([{ Name: "", Protocol: 0 }]).item.service.ports).toMatchObject([{ protocol: "TCP" }]);
  expect("unknownPorts" in putService([{ Name: "", Protocol: 3 }]).item.service).toBe(false);
});

test("a port with an unknown protocol is passed on unchanged, as JSON and to the nodes of a relay", () => {
  const bytes = toBinary(
    EndpointSchema,
    create(EndpointSchema, {
      IPs: { V4: ["10.1.0.1"] },
      PortOverrides: [{ Name: "quic", Port: 9443, Protocol: quic }],
    }),
  );
  const change = received(WireSet.EndpointsSet, "a/web/x", bytes);
  if (change.kind !== "put-endpoint") throw new Error(change.kind);
  const { service } = putService(both).item;
  const json = JSON.parse(formatServiceLine({ service, endpoints: [change.endpoint] }));
  expect(json.Service.Ports).toEqual([
    { Name: "https", Protocol: 1, Port: 443, TargetPort: 8443 },
    { Name: "quic", Protocol: 4, Port: 443, TargetPort: 8443 },
  ]);
  expect(json.Endpoints[0].PortOverrides).toEqual([{ Name: "quic", Port: 9443 }]);
  expect(change.endpoint.ports).toEqual([{ name: "quic", port: 9443, protocol: 4 }]);
  expect(encodeService(service).Ports.map(({ Name, Protocol }) => [Name, Protocol])).toEqual([
    ["https", 1],
    ["quic", 4],
  ]);
});
