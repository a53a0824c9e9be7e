import { port, service, view } from "@kpng/model/testing/views.ts";
import { expect, test, vi } from "vitest";
import type { FlowEvent } from "./flow-event.ts";
import { otherServices, ServiceTrafficCounts } from "./service-counts.ts";

function flow(destination: string, destinationPort: number, fields: Partial<FlowEvent> = {}): FlowEvent {
  const none = { packetsFromClient: 0, bytesFromClient: 0, packetsToClient: 0, bytesToClient: 0 };
  return { kind: "began", protocol: "TCP", destination, destinationPort, ...none, ...fields };
}

test("connections count when they begin, packets and bytes when they end", () => {
  const counts = new ServiceTrafficCounts();
  counts.setView(view([service("a/web", { ips: ["10.96.0.80"], ports: [port(80)] })]));
  counts.add(flow("10.96.0.80", 80));
  counts.add(flow("10.96.0.80", 80));
  const ended = {
    kind: "ended",
    packetsFromClient: 4,
    bytesFromClient: 216,
    packetsToClient: 3,
    bytesToClient: 221,
  } as const;
  counts.add(flow("10.96.0.80", 80, ended));
  expect([...counts.all]).toEqual([
    [
      "a/web",
      { connections: 2, packetsFromClients: 4, bytesFromClients: 216, packetsToClients: 3, bytesToClients: 221 },
    ],
  ]);
});

test("a flow belongs to a Service by address, port and protocol, or by its node port, in the right family", () => {
  const counts = new ServiceTrafficCounts();
  const nodePort = { ...port(80), nodePort: 30_080 };
  counts.setView(view([service("a/web", { ips: ["10.96.0.80"], ports: [nodePort] })]));
  for (const [destination, number, protocol] of [
    ["10.96.0.80", 81, "TCP"],
    ["10.96.0.80", 80, "UDP"],
    ["10.96.0.81", 80, "TCP"],
    ["192.0.2.1", 30_081, "TCP"],
  ] as const) {
    counts.add(flow(destination, number, { protocol }));
  }
  expect(counts.all.size).toBe(0);
  counts.add(flow("192.0.2.1", 30_080));
  counts.add(flow("fd00::1", 30_080));
  expect(counts.all.get("a/web")?.connections).toBe(2);
});

test("1 000 Services have counters; later ones share one, and take the places of Services that are gone", () => {
  const counts = new ServiceTrafficCounts();
  const all = Array.from({ length: 1_010 }, (_, index) =>
    service(`a/s${index}`, { ips: [`10.96.${index >> 8}.${index & 255}`], ports: [port(80)] }),
  );
  counts.setView(view(all));
  const send = (from: number, to: number) => {
    for (let index = from; index < to; index += 1) counts.add(flow(`10.96.${index >> 8}.${index & 255}`, 80));
  };
  send(0, 1_005);
  expect([counts.all.size, counts.all.get(otherServices)?.connections]).toEqual([1_001, 5]);
  counts.setView(view(all.slice(500)));
  send(1_005, 1_010);
  expect(counts.all.has("a/s0")).toBe(false);
  expect(counts.all.get("a/s1009")?.connections).toBe(1);
  expect(counts.all.get(otherServices)?.connections).toBe(5);
});

test("Services that are gone are searched for once for each view, not for each flow", () => {
  const counts = new ServiceTrafficCounts();
  const all = Array.from({ length: 1_100 }, (_, index) =>
    service(`a/s${index}`, { ips: [`10.96.${index >> 8}.${index & 255}`], ports: [port(80)] }),
  );
  const held = view(all);
  const has = vi.spyOn(held.services as Map<string, unknown>, "has");
  counts.setView(held);
  for (let index = 0; index < 1_100; index += 1) counts.add(flow(`10.96.${index >> 8}.${index & 255}`, 80));
  expect(counts.all.get(otherServices)?.connections).toBe(100);
  expect(has.mock.calls.length).toBeLessThanOrEqual(1_000);
});
