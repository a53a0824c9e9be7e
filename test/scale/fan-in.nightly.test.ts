import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Store } from "@kpng/watcher/store/store.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { serveStore, type TestServer } from "../../services/watcher/src/testing/serve-store.ts";
import { describeVariants } from "../kernel/describe-variants.ts";
import { ProxyUnderTest } from "./proxy-under-test.ts";
import { makeScript } from "./scripts.ts";
import { makeCluster } from "./synthetic.ts";

const backend = join(import.meta.dirname, "../../services/backend-iptables/src/main.ts");
const shape = { services: 200, endpoints: 4, nodes: 10 };
const changesPerSecond = 100;

describeVariants("kpng-iptables under 100 changes a second", undefined, (variant) => {
  let folder: string;
  let server: TestServer;
  let proxy: ProxyUnderTest;
  const store = new Store();
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "kpng-fan-in-"));
    store.replace(makeCluster(shape));
    server = await serveStore(store, { listen: [`unix://${join(folder, "watcher.sock")}`] });
    const options = ["--node-name", "node-0", "--cluster-cidr", "10.0.0.0/8", "--state-dir", "none"];
    const command = [process.execPath, backend, "--api", `unix://${join(folder, "watcher.sock")}`, ...options];
    proxy = await ProxyUnderTest.start(variant, [...command, "--metrics-bind-address", "127.0.0.1:10249"], []);
    const isInForce = () => proxy.metric("kpng_backend_syncs_total").then((syncs) => syncs > 0);
    if (!(await proxy.until(isInForce, 30_000))) throw new Error("the rules were not installed within 30 s");
  });
  afterAll(async () => {
    await proxy?.close();
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test("a proxy merges fast changes into fewer syncs, ends with the last change, and keeps answering health checks", async () => {
    const { steps } = makeScript("churn1000", shape);
    const script = steps.slice(0, 5 * changesPerSecond);
    const before = await proxy.metric("kpng_backend_syncs_total");
    const wrong: string[] = [];
    let asked = 0;
    let isOver = false;
    const asking = (async () => {
      while (!isOver) {
        for (const path of ["/livez", "/healthz"]) {
          const { status, body } = await proxy.get(path);
          asked += 1;
          if (status !== 200) wrong.push(`${path}: ${status} ${body}`);
        }
        await sleep(20);
      }
    })();
    const startedAt = performance.now();
    for (const [at, step] of script.entries()) {
      await sleep(Math.max(0, startedAt + (at * 1_000) / changesPerSecond - performance.now()));
      store.apply(step);
    }
    const last = store.snapshot.revision;
    await expect.poll(() => proxy.metric("kpng_backend_revision")).toBe(last);
    isOver = true;
    await asking;

    expect(wrong).toEqual([]);
    expect(asked).toBeGreaterThan(10);
    const syncs = (await proxy.metric("kpng_backend_syncs_total")) - before;
    expect(syncs).toBeGreaterThan(0);
    expect(syncs).toBeLessThan(script.length / 2);
    process.stdout.write(`iptables-${variant}: ${script.length} changes, ${syncs} syncs, ${asked} health checks\n`);
    // Only the last address of each pod is installed.
    const rules = await proxy.rules();
    const given = new Map<string, string>();
    for (const [change] of script) {
      if (change?.kind !== "put-slice") continue;
      given.set(change.slice.name, change.slice.endpoints[0]?.addresses.v4[0] ?? "");
    }
    const stand = new Set([...rules.matchAll(/--to-destination (11\.[\d.]+):/g)].map(([, address]) => address));
    expect([...stand].sort()).toEqual([...given.values()].sort());
  }, 120_000);
});
