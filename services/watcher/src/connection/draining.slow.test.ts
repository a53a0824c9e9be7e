import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { service } from "../testing/build.ts";
import { dialHttp2, type RawWatch } from "../testing/raw-watch.ts";
import { WatchedServer } from "../testing/watched-server.ts";

let watched: WatchedServer;
beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(() => watched.stop());

describe("a watcher that stops", () => {
  test("is not ready, accepts no connections, serves the open ones, and closes them one after the other", async () => {
    const clock = new ManualClock();
    await watched.serve({ drainMs: 5_000, drainClock: clock });
    watched.server.health.setReady("source");
    const watches: RawWatch[] = [];
    for (let count = 0; count < 20; count++) watches.push(await watched.openWatch());
    const told = () => watched.metric("kpng_connections_ended_total", { reason: "drain" });
    const stopped = watched.server.stop();
    for (const [index, watch] of watches.entries()) {
      await expect.poll(() => watch.events.slice(0, 2), { interval: 5 }).toEqual(["goaway", "trailers"]);
      expect({ status: watch.status, pushback: watch.pushback }).toEqual({ status: "14", pushback: "0" });
      expect(watched.server.health.isReady).toBe(false);
      expect(await told()).toBe(index + 1);
      const others = watches.slice(index + 1);
      // The remaining connections still receive changes.
      const counts = others.map(({ byteCount }) => byteCount);
      watched.store.apply([{ kind: "put-service", service: service({ name: `other${index}` }) }]);
      await Promise.all(others.map((other, at) => other.received((counts[at] ?? 0) + 1)));
      expect(others.flatMap(({ events }) => events)).toEqual([]);
      for (const other of others) other.ask();
      if (index === 0) {
        const refused = dialHttp2(watched.address);
        await new Promise((resolve) => refused.once("close", resolve));
      }
      await clock.advance(50);
    }
    await stopped;
    expect(await told()).toBe(20);
  });

  test("ends the connections that remain when its time is over", async () => {
    watched.store.replace({
      services: Array.from({ length: 2_000 }, (_, index) =>
        service({ name: `s${index}`, annotations: { text: "x".repeat(1_000) } }),
      ),
    });
    await watched.serve({ drainMs: 200 });
    const stalled = watched.dialWatch();
    await stalled.received();
    stalled.stream.pause();
    await watched.server.stop();
    await expect.poll(() => watched.metric("kpng_subscribers", { kind: "local" })).toBe(0);
  });

  test("closes connections without asking if it has no time", async () => {
    await watched.serve({ drainMs: 0 });
    const watch = await watched.openWatch();
    await watched.server.stop();
    await watch.ended;
    expect(await watched.metric("kpng_connections_ended_total", { reason: "drain" })).toBe(0);
  });
});
