import { expect, test } from "vitest";
import { useAttackedWatcher } from "./attacked-watcher.ts";

// Clients that try to exhaust a watcher with a memory limit of 512 MB by the calls that they open.
const watcher = useAttackedWatcher();

const timeout = 400_000;

test("2 000 watches of health at a time are refused beyond the limit", { timeout }, async () => {
  const before = await watcher.refused("connection-queries");
  await watcher.survives("watches of health", 5);
  expect(await watcher.refused("connection-queries")).toBeGreaterThan(before);
});

test("calls that begin and are cancelled end their connections", { timeout }, async () => {
  await watcher.survives("resets", 5);
  expect((await watcher.refused("call-rate")) + (await watcher.refused("protocol"))).toBeGreaterThanOrEqual(20);
});
