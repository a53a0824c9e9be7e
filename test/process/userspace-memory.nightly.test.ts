import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { until } from "../cluster/until.ts";
import { startEndpoint, startKpng } from "../scale/carry/carriers.ts";
import { keepOpen } from "../scale/carry/load.ts";
import { usageOf } from "../scale/proc.ts";

const pairs = 2_000;
const maxPairBytes = 32 * 1_024;

test("2 000 open pairs take at most 32 KiB each, again and again, and leave no descriptor", {
  timeout: 180_000,
}, async () => {
  const endpoint = await startEndpoint();
  const kpng = await startKpng(endpoint.port);
  try {
    const { pid } = kpng;
    const files = (): number => readdirSync(`/proc/${pid}/fd`).length;
    const idleFiles = files();
    // Compiles the code.
    (await keepOpen(kpng.port, 500))();
    await until("the connections have ended", () => files() <= idleFiles + 1);
    const idleBytes = usageOf(pid).rssBytes;
    const perPair: number[] = [];
    for (let round = 0; round < 3; round++) {
      const close = await keepOpen(kpng.port, pairs);
      perPair.push((usageOf(pid).rssBytes - idleBytes) / pairs);
      expect(files()).toBeGreaterThan(2 * pairs);
      close();
      await until("the connections have ended", () => files() <= idleFiles + 1);
    }
    expect(Math.max(...perPair)).toBeLessThan(maxPairBytes);
  } finally {
    await Promise.all([kpng.stop(), endpoint.stop()]);
  }
});
