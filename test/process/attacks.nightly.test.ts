import { describe, expect, test } from "vitest";
import { useAttackedWatcher } from "./attacks/attacked-watcher.ts";

// Clients that try to exhaust the memory of a watcher with a memory limit of 512 MB.
const timeout = 400_000;

describe("a watcher", () => {
  const watcher = useAttackedWatcher();

  test("survives 1 000 WatchEndpoints on each of three connections that do not read", { timeout }, async () => {
    await watcher.survives("unread queries", 5);
    const counts = await Promise.all(["connection-queries", "queries"].map((reason) => watcher.refused(reason)));
    // 100 calls of a connection get as far as the limits of queries, and at most 32 of them are admitted.
    expect(counts.reduce((all, one) => all + one)).toBeGreaterThanOrEqual(3 * (100 - 32));
    expect(watcher.program.stderr()).toContain("query refused");
  });

  test("ends connections whose unfinished requests hold too much memory", { timeout }, async () => {
    await watcher.survives("unfinished requests", 5);
    expect(await watcher.refused("requests")).toBeGreaterThan(0);
  });
});
