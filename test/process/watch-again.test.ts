import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { expect, test, vi } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

// `kpng get --watch` while its watcher restarts.
vi.setConfig({ testTimeout: 120_000, expect: { poll: { timeout: 60_000 } } });

const { at, start } = usePrograms();
const kpng = (...args: string[]): Program => start(kpngMain, args, { KPNG_API: `unix://${at("api.sock")}` });

test("a watch goes on with the state of the next watcher", async () => {
  const input = at("state.yaml");
  cpSync(resolve("test/fixtures/kpng/input.yaml"), input);
  const startWatcher = async (): Promise<Program> => {
    const watcher = kpng("file", "-i", input, "to-api", "--listen", `unix://${at("api.sock")}`);
    await watcher.said('"msg":"input read"');
    return watcher;
  };
  const first = await startWatcher();
  const watch = kpng("get", "endpoints", "-w", "-o", "json");
  await expect.poll(() => watch.stdout()).toContain("10.1.0.2");
  first.kill();
  await first.ended;
  await expect.poll(() => watch.stderr()).toContain("connection lost");

  writeFileSync(input, readFileSync(input, "utf8").replaceAll("10.1.0.2", "10.1.0.99"));
  await startWatcher();
  await expect.poll(() => watch.stdout()).toContain("10.1.0.99");
  await expect.poll(() => watch.stderr()).toContain("connected again");
  watch.stop();
  expect(await watch.ended).toBe(0);
});

test("a watch that never reached a watcher fails", async () => {
  const watch = kpng("get", "endpoints", "-w");
  expect(await watch.ended).toBe(1);
  expect(watch.stderr()).toContain("Hint: there is no such socket");
});
