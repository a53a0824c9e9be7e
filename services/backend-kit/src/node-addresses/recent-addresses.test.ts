import type { AddressSet, Family } from "@kpng/model/address.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { expect, test } from "vitest";
import { RecentAddresses } from "./recent-addresses.ts";

/** Addresses of a node whose reading takes `costMs` of each family. */
async function start(costMs: number) {
  const clock = new ManualClock();
  const present: Record<Family, string[]> = { v4: ["192.0.2.1"], v6: ["2001:db8::1"] };
  let spentMs = 0;
  const tool = { fails: false };
  const take = (family: Family): readonly string[] => {
    spentMs += costMs;
    return [...present[family]];
  };
  const read = (onFailure: () => void): AddressSet => ({
    get v4() {
      if (tool.fails) onFailure();
      return take("v4");
    },
    get v6() {
      return take("v6");
    },
  });
  const recent = new RecentAddresses({ read, nowMs: () => clock.nowMs() + spentMs });
  return { clock, present, recent, tool, spentMs: () => spentMs };
}

test("a reading is used for 20 times as long as it took", async () => {
  const { clock, present, recent } = await start(10);
  expect(recent.read().v4).toEqual(["192.0.2.1"]);
  present.v4.push("192.0.2.2");
  await clock.advance(199);
  expect(recent.read().v4).toEqual(["192.0.2.1"]);
  await clock.advance(1);
  expect(recent.read().v4).toEqual(["192.0.2.1", "192.0.2.2"]);
});

test("a reading is used for a second at most, however long it took", async () => {
  const { clock, present, recent } = await start(60_000);
  recent.read().v4;
  present.v4.length = 0;
  await clock.advance(999);
  expect(recent.read().v4).toEqual(["192.0.2.1"]);
  await clock.advance(1);
  expect(recent.read().v4).toEqual([]);
});

test("a reading that failed is not used, unless there is no other, and is not kept", async () => {
  const { present, recent, tool } = await start(10);
  tool.fails = true;
  expect(recent.read().v4).toEqual(["192.0.2.1"]);
  tool.fails = false;
  present.v4 = ["192.0.2.2"];
  expect(recent.read().v4).toEqual(["192.0.2.2"]);
  tool.fails = true;
  present.v4 = ["192.0.2.2", "10.96.0.1"];
  recent.forget();
  expect(recent.read().v4).toEqual(["192.0.2.2"]);
  tool.fails = false;
  present.v4 = ["192.0.2.3"];
  expect(recent.read().v4).toEqual(["192.0.2.3"]);
});

test("readings take at most a twentieth of the time, however often addresses are needed", async () => {
  const { clock, recent, spentMs } = await start(10);
  for (let at = 0; at < 10_000; at++) {
    recent.read().v4;
    await clock.advance(1);
  }
  expect(spentMs()).toBeLessThanOrEqual((clock.nowMs() + spentMs()) / 20);
});

test("the families are read separately, and only when they are accessed", async () => {
  const { recent, spentMs } = await start(10);
  recent.read();
  expect(spentMs()).toBe(0);
  expect([recent.read().v6, recent.read().v6]).toEqual([["2001:db8::1"], ["2001:db8::1"]]);
  expect(spentMs()).toBe(10);
});

test("after forget, the addresses are read again", async () => {
  const { present, recent } = await start(10);
  recent.read().v4;
  present.v4.length = 0;
  recent.forget();
  expect(recent.read().v4).toEqual([]);
});
