import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { useAttackedWatcher } from "./attacks/attacked-watcher.ts";

// Clients that try to exhaust the memory or the files of a watcher with a memory limit of 512 MB.
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

  test("answers 20 000 pipelined requests on one HTTP/1.1 connection one after the other", { timeout }, async () => {
    await watcher.survives("pipelined requests", 5);
  });
});

describe("a watcher with --max-connections 50", () => {
  const watcher = useAttackedWatcher(["--max-connections", "50"]);

  test("closes the connections beyond, and health answers", { timeout }, async () => {
    const sockets: Socket[] = [];
    const dial = async (): Promise<void> => {
      const socket = connect(watcher.port, "127.0.0.1").on("error", () => undefined);
      sockets.push(socket);
      await once(socket, "connect");
    };
    await watcher.survive(async () => {
      await Promise.all(Array.from({ length: 500 }, dial));
      await delay(500);
      for (const socket of sockets) socket.destroy();
    });
    expect(await watcher.refused("connections")).toBeGreaterThanOrEqual(450);
    expect(watcher.program.stderr().match(/connection refused/g)?.length).toBe(1);
  });
});
