import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { expect, test, vi } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

// `kpng get --watch` and `kpng top` while their watcher restarts.
vi.setConfig({ testTimeout: 120_000, expect: { poll: { timeout: 60_000 } } });

const { at, start } = usePrograms();
const kpng = (...args: string[]): Program => start(kpngMain, args, { KPNG_API: `unix://${at("api.sock")}` });

test("a watch and top go on with the state of the next watcher", async () => {
  const input = at("state.yaml");
  cpSync(resolve("test/fixtures/kpng/input.yaml"), input);
  const startWatcher = async (): Promise<Program> => {
    const watcher = kpng("file", "-i", input, "to-api", "--listen", `unix://${at("api.sock")}`);
    await watcher.said('"msg":"input read"');
    return watcher;
  };
  const first = await startWatcher();
  const watch = kpng("get", "endpoints", "-w", "-o", "json");
  const top = kpng("top", "--interval", "100ms");
  await expect.poll(() => watch.stdout()).toContain("10.1.0.2");
  await expect.poll(() => top.stdout()).toContain("synced");
  first.kill();
  await first.ended;
  await expect.poll(() => [watch.stderr(), top.stderr()].every((text) => text.includes("connection lost"))).toBe(true);

  writeFileSync(input, readFileSync(input, "utf8").replaceAll("10.1.0.2", "10.1.0.99"));
  await startWatcher();
  await expect.poll(() => watch.stdout()).toContain("10.1.0.99");
  await expect.poll(() => [watch.stderr(), top.stderr()].every((text) => text.includes("connected again"))).toBe(true);
  watch.stop();
  top.stop();
  expect([await watch.ended, await top.ended]).toEqual([0, 0]);
});

test("a watch that never reached a watcher fails", async () => {
  const watch = kpng("get", "endpoints", "-w");
  expect(await watch.ended).toBe(1);
  expect(watch.stderr()).toContain("Hint: there is no such socket");
});
