import { expect, test } from "vitest";
import { runAttack, useAttackedWatcher } from "./attacked-watcher.ts";

// Clients that try to exhaust a watcher with a memory limit of 512 MB by the calls that they open.
const watcher = useAttackedWatcher();

const timeout = 400_000;

test("2 000 watches of health at a time are refused beyond the limit", { timeout }, async () => {
  const before = await watcher.refused("connection-queries");
  await watcher.survives("watches of health", 5);
  expect(await watcher.refused("connection-queries")).toBeGreaterThan(before);
});

// Its p99 is not judged: as soon as a connection has ended, the attacker opens another one.
test("calls that begin and are cancelled end their connections", { timeout }, async () => {
  await runAttack("resets", watcher.port, watcher.healthPort, 5);
  const ended = async () => (await watcher.refused("call-rate")) + (await watcher.refused("protocol"));
  await expect.poll(ended, { timeout: 30_000 }).toBeGreaterThanOrEqual(20);
});
