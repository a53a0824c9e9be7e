import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Store } from "@kpng/watcher/store/store.ts";
import { endpoint, node, service, servicePort, slice } from "@kpng/watcher/testing/build.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { describePackets } from "../kernel/describe-packets.ts";
import { usageOf } from "../scale/proc.ts";

/**
 * Memory limit of one Service with 2 ports and 10 endpoints, in bytes. Measured: 18 000 to 21 000, and 25 000 to 28
 * 000.
 *
 * V8 frees garbage when it likes, so two runs differ by some 10 MB: with only 1 000 Services that is a third of the
 * result, with 3 000 a tenth.
 */
const maxBytesPerService = { json: 32_000, iptables: 44_000 };

/** Time limit for two starts of a program on a busy machine. */
const timeoutMs = 120_000;

const [serviceCount, endpointCount] = [3_000, 10];

// Bundled programs, as in the images: when run from sources, the compiler dominates the memory.
let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-memory-"));
  execFileSync(process.execPath, ["deploy/images/bundle.ts", folder], { stdio: ["ignore", "ignore", "inherit"] });
});
afterAll(() => rmSync(folder, { recursive: true }));

function fill(store: Store, services: number): void {
  const names = Array.from({ length: services }, (_, index) => `service-${index}`);
  const ports = ["http", "metrics"].map((name, index) =>
    servicePort({ name, port: 80 + index, targetPort: 8080 + index }),
  );
  store.replace({
    services: names.map((name, at) => service({ name, clusterIPs: { v4: [address(172, at)], v6: [] }, ports })),
    slices: names.map((name, at) => slice(makeEndpoints(name, at), { name: `${name}-a`, serviceName: name })),
    nodes: [node("n1")],
  });
}

function makeEndpoints(name: string, at: number) {
  return Array.from({ length: endpointCount }, (_, pod) =>
    endpoint(address(10, at * endpointCount + pod), {
      podName: `${name}-6f7c9b8d4-${pod}`,
      nodeName: `node-${pod}`,
      ports: ["http", "metrics"].map((port, index) => ({ name: port, port: 8080 + index, protocol: "TCP" as const })),
    }),
  );
}

function address(first: number, number: number): string {
  return `${first}.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
}

/** Returns the resident memory of a program after it has synced a view of so many Services, in bytes. */
async function residentBytes(services: number, command: readonly string[]): Promise<number> {
  const store = new Store();
  fill(store, services);
  const listen = `unix://${join(folder, `${services}.sock`)}`;
  const server: TestServer = await serveStore(store, { listen: [listen] });
  const [program = "", ...args] = [...command, "--api", listen, "--node-name", "n1", "--log-level", "debug"];
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  const gone = new Promise((resolve) => child.once("close", resolve));
  try {
    await new Promise<void>((resolve, reject) => {
      let said = "";
      child.once("error", reject);
      child.once("close", (code) => reject(new Error(`${program} exited with status ${code}: ${said}`)));
      child.stderr.setEncoding("utf8").on("data", (text: string) => {
        said += text;
        if (said.includes('"msg":"sync complete"')) resolve();
      });
    });
    return usageOf(child.pid ?? 0).rssBytes;
  } finally {
    child.kill();
    await gone;
    await server.stop();
  }
}

async function expectSmall(command: readonly string[], limit: number): Promise<void> {
  const empty = await residentBytes(0, command);
  const full = await residentBytes(serviceCount, command);
  const perService = (full - empty) / serviceCount;
  expect(perService, `${full} bytes with ${serviceCount} Services, ${empty} without any`).toBeLessThan(limit);
}

describe("the memory of a backend per Service is bounded", () => {
  test("kpng-json", { timeout: timeoutMs }, () =>
    expectSmall([process.execPath, join(folder, "kpng-json.mjs")], maxBytesPerService.json),
  );
});

describePackets("what a Service takes in the memory of a backend with rules is bounded", () => {
  test("kpng-iptables", { timeout: timeoutMs }, async () => {
    const program = [process.execPath, join(folder, "kpng-iptables.mjs"), "--state-dir", "none"];
    await expectSmall(["unshare", "--net", ...program], maxBytesPerService.iptables);
  });
});
