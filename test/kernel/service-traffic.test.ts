import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { buildNetwork, network, podA } from "@kpng/laboratory/one-node.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { programFile } from "../process/program-file.ts";
import { describePackets } from "./describe-packets.ts";

const main = programFile("cli");
const wait = { timeout: 60_000, interval: 500 };

const manifests = `apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { clusterIP: 10.96.0.80, clusterIPs: [10.96.0.80], ports: [{ port: 8080, protocol: TCP, targetPort: 80 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
ports: [{ name: "", port: 80, protocol: TCP }]
endpoints: [{ addresses: [${podA.v4}], nodeName: n1, conditions: { ready: true } }]
---
apiVersion: v1
kind: Node
metadata: { name: n1 }
`;

describePackets("the traffic of Services, with packets", () => {
  let laboratory: Laboratory;
  const folder = mkdtempSync(join(tmpdir(), "kpng-traffic-"));
  const api = `unix://${join(folder, "api.sock")}`;

  beforeAll(async () => {
    writeFileSync(join(folder, "state.yaml"), manifests);
    laboratory = await Laboratory.open();
    await buildNetwork(laboratory, network);
    await AgentClient.start(laboratory, podA.name, [80], [podA.v4]);
    const start = (...args: string[]) => laboratory.start("n1", [process.execPath, main, ...args]);
    start("file", "-i", join(folder, "state.yaml"), "to-api", "--listen", api);
    start("local", "to-nft", "--api", api, "--node-name", "n1", "--service-traffic");
  }, 120_000);

  afterAll(async () => {
    await laboratory.close();
    rmSync(folder, { recursive: true });
  });

  test("kpng top services shows the connections, packets and bytes that a client's packets made", {
    timeout: 240_000,
  }, async () => {
    const connectOnce = `const s = require("node:net").connect(8080, "10.96.0.80", () => s.end("who?"));
      s.on("error", () => process.exit(1)).resume();`;
    const top = async () => {
      const words = ["top", "services", "shop/web", "--api", api, "-o", "json"];
      const stdout = await laboratory.run("n1", [process.execPath, main, ...words]);
      return (JSON.parse(stdout) as Readonly<Record<string, unknown>>[])[0];
    };
    let opened = 0;
    const open = async () => {
      await laboratory.run(network.client.name, [process.execPath, "-e", connectOnce]);
      opened += 1;
    };
    // The first connections may be older than the rules, and than the program that reports them.
    await expect.poll(async () => open().then(top, () => undefined), wait).toMatchObject({ node: "n1", nodeCount: 1 });
    const before = Number((await top())?.connections);
    for (let count = 0; count < 5; count += 1) await open();
    // Connections of the polls above may be reported only now.
    await expect.poll(async () => Number((await top())?.connections), wait).toBeGreaterThanOrEqual(before + 5);
    expect(Number((await top())?.connections)).toBeLessThanOrEqual(opened);
    // Packets and bytes count when a flow ends.
    await laboratory.run("n1", ["sh", "-c", "conntrack -D -p tcp >/dev/null 2>&1 || true"]);
    await expect.poll(async () => Number((await top())?.packetsFromClients), wait).toBeGreaterThanOrEqual(4 * 5);
    expect(Number((await top())?.bytesFromClients)).toBeGreaterThanOrEqual(5 * 4 * 40);
  });
});
