import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { beforeEach, expect, test, vi } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

vi.setConfig({ testTimeout: 120_000 });

const { at, start } = usePrograms();
const api = (): string => `unix://${at("api.sock")}`;
const kpng = (...args: string[]): Program => start(kpngMain, args, { KPNG_API: api() });
const names = /web-1|web-2|\bnoeps\b|\b(n1|n2|za|zb)\b|10\.1\.0\.[1-4]|198\.51\.100\.1|fd00::1\b/;

beforeEach(async () => {
  const input = resolve("test/fixtures/kpng/input.yaml");
  const watcher = kpng("file", "-i", input, "to-api", "--listen", api(), "--metrics-bind-address", "127.0.0.1:0");
  await watcher.said('"msg":"listening"');
  writeFileSync(at("node.log"), '{"msg":"sync failed","service":"default/web","reason":"no route to 10.1.0.1"}\n');
});

/** Writes a report, unpacks it, and returns its folder. */
async function report(...args: string[]): Promise<string> {
  const program = kpng("bug-report", "-o", at("report.tar.gz"), "--log", at("node.log"), ...args);
  expect(await program.ended, program.stderr()).toBe(0);
  const folder = at(`report${args.length}`);
  mkdirSync(folder);
  execFileSync("tar", ["-xzf", at("report.tar.gz"), "-C", folder]);
  return join(folder, "kpng-bug-report");
}

test("a bug report has a recording that can be replayed, and names what could not be collected", async () => {
  const folder = await report("--metrics", "http://127.0.0.1:1/metrics", "--backend", `unix://${at("none.sock")}`);
  expect(readdirSync(folder).sort()).toEqual([
    "errors.txt",
    "findings.txt",
    "log-1.txt",
    "nodes.json",
    "recording.jsonl.gz",
    "status.json",
    "subscribers.json",
    "versions.json",
  ]);
  expect(readFileSync(join(folder, "errors.txt"), "utf8")).toMatch(/^backend-1\.json: .*\nmetrics-1\.txt: /);
  expect(readFileSync(join(folder, "findings.txt"), "utf8")).toContain("service/default/noeps");
  const replay = kpng("replay", "-i", join(folder, "recording.jsonl.gz"), "get", "svc", "-o", "name");
  expect(await replay.ended, replay.stderr()).toBe(0);
  expect(replay.stdout()).toBe("service/default/noeps\nservice/default/web\n");
});

test("a redacted report names nothing of the cluster, and its state can be read", async () => {
  const folder = await report("--redact");
  for (const file of readdirSync(folder)) {
    expect(readFileSync(join(folder, file), "utf8"), file).not.toMatch(names);
  }
  expect(readFileSync(join(folder, "log-1.txt"), "utf8")).toMatch(/"default\/service-\d".*"no route to 10\.0\.0\.\d+"/);
  const get = kpng("file", "-i", join(folder, "state.yaml"), "get", "svc", "--no-headers");
  expect(await get.ended).toBe(0);
  expect(get.stderr()).toBe("");
  expect(get.stdout()).toMatch(/^default +service-1 +ClusterIP .* 0\/0\ndefault +service-2 +LoadBalancer .* 3\/4\n$/);
});
