import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { runKpng } from "../docs/run-kpng.ts";
import { kpngMain, usePrograms } from "./programs.ts";

vi.setConfig({ testTimeout: 120_000 });

const { at, start } = usePrograms();
const api = (): string => `unix://${at("api.sock")}`;

beforeEach(() => {
  vi.stubEnv("KPNG_API", api());
  writeFileSync(at("node.log"), '{"msg":"sync failed","service":"default/web","reason":"no route to 10.1.0.1"}\n');
});
afterEach(() => {
  vi.unstubAllEnvs();
});

async function startWatcher(): Promise<void> {
  const input = resolve("test/fixtures/kpng/input.yaml");
  const args = ["file", "-i", input, "to-api", "--listen", api(), "--metrics-bind-address", "127.0.0.1:0"];
  const watcher = start(kpngMain, args);
  await watcher.said('"msg":"listening"');
  await watcher.said('"msg":"input read"');
}

/** Writes a report, unpacks it, and returns its folder. */
async function report(...args: string[]): Promise<string> {
  const { code, said } = await runKpng(["bug-report", "-o", at("report.tar.gz"), "--log", at("node.log"), ...args]);
  expect(code, said).toBe(0);
  mkdirSync(at("report"));
  execFileSync("tar", ["-xzf", at("report.tar.gz"), "-C", at("report")]);
  return join(at("report"), "kpng-bug-report");
}

test("a bug report has a recording that can be replayed, and names what could not be collected", async () => {
  await startWatcher();
  const line = `${"x".repeat(999)}\n`;
  writeFileSync(at("long.log"), line.repeat(4_300));
  // An older report that everyone may read.
  writeFileSync(at("report.tar.gz"), "", { mode: 0o644 });
  const metrics = ["--metrics", "http://127.0.0.1:1/metrics", "--metrics", "http://user:secret@127.0.0.1:1/"];
  const folder = await report("--log", at("long.log"), ...metrics, "--backend", `unix://${at("none.sock")}`);
  expect(statSync(at("report.tar.gz")).mode & 0o777).toBe(0o600);
  expect(readdirSync(folder).sort()).toEqual([
    "errors.txt",
    "findings.txt",
    "log-1.txt",
    "log-2.txt",
    "nodes.json",
    "recording.jsonl.gz",
    "status.json",
    "subscribers.json",
    "versions.json",
  ]);
  const errors = readFileSync(join(folder, "errors.txt"), "utf8");
  expect(errors).toMatch(/^backend-1\.json: .*\nmetrics-1\.txt: .*\nmetrics-2\.txt: /);
  expect(errors).not.toContain("secret");
  const end = readFileSync(join(folder, "log-2.txt"), "utf8");
  expect([end.length, end.slice(0, 1_000)]).toEqual([4_194_000, line]);
  expect(readFileSync(join(folder, "findings.txt"), "utf8")).toContain("service/default/noeps");
  const replay = await runKpng(["replay", "-i", join(folder, "recording.jsonl.gz"), "get", "svc", "-o", "name"]);
  expect(replay).toEqual({ code: 0, said: "", out: "service/default/noeps\nservice/default/web\n" });
});

test("without a watcher, logs are still collected", async () => {
  expect(readdirSync(await report()).sort()).toEqual(["errors.txt", "log-1.txt"]);
});
