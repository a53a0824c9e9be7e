import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { describePackets } from "../kernel/describe-packets.ts";
import { usageOf } from "../scale/proc.ts";

/**
 * Memory limit of one Service with 10 endpoints, in bytes. Measured: 15 000 to 26 000, and 20 000 to 25 000.
 *
 * V8 frees garbage when it likes, so two runs differ by some 10 MB: with only 1 000 Services that is a third of the
 * result, with 3 000 a tenth.
 */
const maxBytesPerService = { json: 32_000, iptables: 38_000 };

/** Time limit for two starts of a program on a busy machine. */
const timeoutMs = 120_000;

const serviceCount = 3_000;

// Bundled programs, as in the images: when run from sources, the compiler dominates the memory.
const folder = temporaryFolder(afterAll);
beforeAll(() => {
  execFileSync(process.execPath, ["deploy/images/bundle.ts", folder], { stdio: ["ignore", "ignore", "inherit"] });
});

/** Returns the resident memory of a program after it has synced a view of so many Services, in bytes. */
async function residentBytes(services: number, command: readonly string[]): Promise<number> {
  const store = new Store();
  store.replace(makeCluster({ services, endpoints: 10, nodes: 10 }));
  const listen = `unix://${join(folder, `${services}.sock`)}`;
  const server: TestServer = await serveStore(store, { listen: [listen] });
  const [program = "", ...args] = [...command, "--api", listen, "--node-name", "node-0", "--log-level", "debug"];
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
  process.stdout.write(`${perService.toFixed(0)} bytes for each Service\n`);
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
