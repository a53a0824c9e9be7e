import { spawn, spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { kpngMain, usePrograms } from "../../process/programs.ts";

const { at, start } = usePrograms();

test("a source in Python: a registry of machines becomes a Service, and a change of it reaches the node", async (context) => {
  if (spawnSync("python3", ["--version"]).status !== 0) {
    if (process.env.CI === "true") expect.fail("CI must have python3");
    context.skip("python3 not found");
  }
  const [registry, state] = [at("registry.json"), at("state.json")];
  const machines = (all: Readonly<Record<string, string>>): void =>
    writeFileSync(registry, JSON.stringify({ db: { address: "10.96.0.80", ports: { 5432: 15432 }, machines: all } }));
  machines({ "10.1.0.7": "up", "10.1.0.8": "leaving" });
  const source = spawn("python3", [resolve("examples/source-python/source.py"), registry, state], { stdio: "inherit" });
  onTestFinished(() => void source.kill());
  await vi.waitUntil(() => existsSync(state), { timeout: 30_000 });
  const node = start(kpngMain, ["file", "-i", state, "to-local", "to-json", "--node-name", "n1"]);
  const last = (): string => node.stdout().trimEnd().split("\n").at(-1) ?? "";
  await expect.poll(last, { timeout: 30_000 }).toContain("10.1.0.7");
  expect(last()).toContain("15432");
  expect(last()).not.toContain("10.1.0.8");
  machines({ "10.1.0.8": "leaving" });
  await expect.poll(last, { timeout: 30_000 }).toContain("10.1.0.8");
  expect(last()).not.toContain("10.1.0.7");
});
