import { describe, expect, test } from "vitest";
import { runAttack, useAttackedWatcher } from "./attacked-watcher.ts";

// The watchers have a memory limit of 512 MB.
const timeout = 400_000;

describe("a watcher whose memory clients try to exhaust", () => {
  const watcher = useAttackedWatcher();

  test("survives 1 000 WatchEndpoints on each of three connections that do not read", { timeout }, async () => {
    await watcher.survives("unread queries", 5);
    // 100 calls of a connection get as far as the limit of queries, which is an eighth of the memory: 64 and some.
    expect(await watcher.refused("queries")).toBeGreaterThanOrEqual(3 * 100 - 70);
    expect(watcher.program.stderr()).toContain("query refused");
  });

  test("ends connections whose unfinished requests hold too much memory", { timeout }, async () => {
    // The C library keeps freed buffers of less than 32 KiB: about 100 MiB, however often the attack is repeated.
    await watcher.survives("unfinished requests", 5, 128 * 1024 * 1024);
    expect(await watcher.refused("requests")).toBeGreaterThan(0);
  });
});

describe("a watcher whose clients open many calls", () => {
  const watcher = useAttackedWatcher();

  test("refuses watches of health beyond their limit", { timeout }, async () => {
    await watcher.survives("watches of health", 5);
    expect(await watcher.refused("open-calls")).toBeGreaterThan(0);
  });

  // Its p99 is not judged: as soon as a connection has ended, the attacker opens another one.
  test("ends connections that begin and cancel calls without end", { timeout }, async () => {
    await runAttack("resets", watcher.port, 5);
    const ended = async () => (await watcher.refused("call-rate")) + (await watcher.refused("protocol"));
    await expect.poll(ended, { timeout: 30_000 }).toBeGreaterThanOrEqual(20);
  });
});
