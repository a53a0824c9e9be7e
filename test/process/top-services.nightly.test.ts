import { writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { describe, expect, test, vi } from "vitest";
import { rowsOf } from "../docs/output-schema.ts";
import { runKpng } from "../docs/run-kpng.ts";
import type { GrpcJsWatch } from "../peer/grpc-js-client.ts";
import { useInspectedWatcher } from "./inspected-watcher.ts";
import { kpngMain, usePrograms } from "./programs.ts";

vi.setConfig({ testTimeout: 120_000 });
const wait = { timeout: 60_000 };

describe("ListTraffic", () => {
  const watcher = useInspectedWatcher();
  const report = (on: GrpcJsWatch, Service: string, Connections: bigint, BytesPerSecond = 0n): void =>
    on.send({ Traffic: { Services: [{ Service, Connections, BytesPerSecond, BytesToClients: 10n * Connections }] } });
  const list = (request: Parameters<ReturnType<typeof watcher.client>["listTraffic"]>[0]) =>
    watcher.client().listTraffic(request);

  test("adds up what nodes report, and names the nodes of one Service", async () => {
    watcher.list();
    const [n1, n2] = [await watcher.join("n1"), await watcher.join("n2")];
    report(n1, "ns/web", 3n, 50n);
    report(n2, "ns/web", 4n, 60n);
    await expect.poll(async () => (await list({})).nodeCount, wait).toBe(2);
    expect((await list({})).traffic).toMatchObject([
      {
        namespace: "ns",
        name: "web",
        node: "",
        nodeCount: 2,
        connections: 7n,
        bytesToClients: 70n,
        bytesPerSecond: 110,
      },
    ]);
    expect((await list({ namespace: "ns", name: "web" })).traffic).toMatchObject([
      { node: "n2", connections: 4n },
      { node: "n1", connections: 3n },
    ]);
    expect((await list({ node: "n1" })).traffic).toMatchObject([{ connections: 3n, nodeCount: 1 }]);
    // A report replaces the previous one, and a node that is gone has none.
    report(n1, "ns/dns", 1n);
    n2.close();
    await expect.poll(async () => (await list({})).traffic.map(({ name }) => name), wait).toEqual(["dns"]);
  });

  test("counts a node once while an earlier stream of it is still open", async () => {
    watcher.list();
    const [broken, n1] = [await watcher.join("n1"), await watcher.join("n1")];
    report(broken, "ns/web", 3n);
    await expect.poll(async () => (await list({})).traffic.map(({ connections }) => connections), wait).toEqual([3n]);
    report(n1, "ns/web", 4n);
    await expect.poll(async () => (await list({})).traffic.map(({ connections }) => connections), wait).toEqual([4n]);
  });

  test("counts what is beyond the limit as others, in every format, and refuses a name without a namespace", async () => {
    watcher.list();
    const n1 = await watcher.join("n1");
    const Services = ["ns/web", "ns/dns", "no/such"].map((Service) => ({ Service, Connections: 2n ** 64n - 1n }));
    n1.send({ Traffic: { Services } });
    await expect.poll(async () => (await list({})).nodeCount, wait).toBe(1);
    const { traffic, others } = await list({ limit: 1 });
    expect(traffic).toHaveLength(1);
    expect(others).toMatchObject({ name: "", nodeCount: 1, connections: 2n * BigInt(Number.MAX_SAFE_INTEGER) });
    const top = async (...args: string[]) => {
      const words = ["top", "services", "--api", watcher.server.address, "--limit", "1", ...args];
      const { out, said, code } = await runKpng(words);
      expect(code, said).toBe(0);
      return out;
    };
    const rows = JSON.parse(await top("-o", "json"));
    expect(rowsOf("Traffic").safeParse(rows).error?.issues ?? []).toEqual([]);
    expect(rows).toMatchObject([{ namespace: "ns" }, { namespace: "", name: "", nodeCount: 1 }]);
    expect((await top("-o", "name")).split("\n")).toHaveLength(2);
    await expect(list({ name: "web" })).rejects.toThrow("name requires namespace");
    await expect(list({ limit: 1_001 })).rejects.toThrow("limit 1001 exceeds 1000");
  });

  test("a report beyond the size of a request ends only the stream of its node", async () => {
    watcher.list();
    const [n1, n2] = [await watcher.join("n1"), await watcher.join("n2")];
    report(n2, "ns/web", 4n);
    const Services = Array.from({ length: 1_000_000 }, (_, index) => ({ Service: `ns/s${index}`, Connections: 1n }));
    n1.send({ Traffic: { Services } });
    await expect.poll(() => watcher.subscribers.open.size, wait).toBe(1);
    await expect.poll(async () => (await list({})).traffic.map(({ connections }) => connections), wait).toEqual([4n]);
    n2.send({ NodeName: "n2", Features: [Feature.Extended] });
  });

  test("is a method that never changes anything, so that a browser may call it with GET", () => {
    expect(InspectService.method.listTraffic.idempotency).toBe(InspectService.method.listNodes.idempotency);
  });
});

describe("kpng top services", () => {
  const { at, start } = usePrograms();

  test("shows the traffic that a node carried", async () => {
    const api = `unix://${at("api.sock")}`;
    const server = createServer((socket) => socket.end("x".repeat(5_000)).resume());
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    writeFileSync(at("state.yaml"), manifests(port));
    const watcher = start(kpngMain, ["file", "-i", at("state.yaml"), "to-api", "--listen", api]);
    await watcher.said('"msg":"input read"');
    const node = start("services/backend-userspace/src/main.ts", [
      ...["--api", api, "--node-name", "n1", "--entry", "map", "--map", "127.0.0.1", "--service-traffic"],
    ]);
    await expect.poll(() => node.stdout(), wait).toMatch(/127\.0\.0\.1:\d+/);
    const mapped = Number(/127\.0\.0\.1:(\d+)/.exec(node.stdout())?.[1]);
    for (let count = 0; count < 3; count += 1) {
      await new Promise((resolve) => connect(mapped, "127.0.0.1").resume().on("close", resolve));
    }
    const top = async (...args: string[]): Promise<string> => {
      const program = start(kpngMain, ["top", "services", "--count", "1", ...args], { KPNG_API: api });
      expect(await program.ended, program.stderr()).toBe(0);
      return program.stdout();
    };
    await expect
      .poll(() => top(), wait)
      .toMatch(/^1 node reports traffic\nSERVICE +CONN\/S[^\n]*\nshop\/web +\S+ +[\d.]+ \w+ +3 +- +0 B +15 kB +1\n$/);
    expect(await top("shop/web")).toMatch(/\nNODE [^\n]*\nn1 /);
    expect(JSON.parse(await top("-o", "json"))).toMatchObject([
      { name: "web", connections: 3, bytesToClients: 15_000 },
    ]);
    server.close();
  });
});

/** A Service with one endpoint on this machine. */
function manifests(port: number): string {
  return `apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { clusterIP: 10.96.0.80, clusterIPs: [10.96.0.80], ports: [{ port: 80, protocol: TCP, targetPort: ${port} }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
ports: [{ name: "", port: ${port}, protocol: TCP }]
endpoints: [{ addresses: [127.0.0.1], conditions: { ready: true } }]
---
apiVersion: v1
kind: Node
metadata: { name: n1 }
`;
}
