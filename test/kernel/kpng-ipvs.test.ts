import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runInGuest, whyNoGuest } from "../guest/guest.ts";
import { scenarios } from "../scenario/scenarios.ts";
import { updates } from "../scenario/updates.ts";
import { guestCheckNames, quickScenarios } from "./ipvs/guest-checks.ts";
import type { GuestResult } from "./ipvs/guest-main.ts";

/**
 * Scenarios, updates and checks to run, as a regular expression of their names: those that a quick run has, or the ones
 * asked for.
 */
const wanted = process.env.KPNG_IPVS_SCENARIOS;
const quick = quickScenarios.union(new Set(guestCheckNames));
const names = [...scenarios.map(({ name }) => name), ...updates.map(({ name }) => name), ...guestCheckNames].filter(
  (name) => (wanted === undefined ? quick.has(name) : new RegExp(wanted).test(name)),
);

const missing = whyNoGuest();

// One guest runs all of them: its start and its network take as long as several scenarios.
describe("kpng-ipvs, with the kernel of a guest", () => {
  if (missing !== undefined) {
    if (process.env.CI === "true") test("can run", () => expect.fail(missing));
    else test.skip(`can run (skipped: ${missing})`, () => undefined);
    return;
  }
  let folder: string;
  let whyNotBooted: string | undefined;
  let output = "";
  let results: ReadonlyMap<string, GuestResult> = new Map();

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "kpng-guest-"));
    const file = join(folder, "results.jsonl");
    const end = await runInGuest({
      folder,
      command: [process.execPath, "test/kernel/ipvs/guest-main.ts", file, JSON.stringify(names)],
      // A packet that must be answered may wait long on one emulated CPU.
      environment: { NODE_COMPILE_CACHE: "/tmp/node-compile", KPNG_ANSWER_MS: "20000" },
      timeoutMs: 560_000,
    });
    if (end.kind === "not-booted") whyNotBooted = end.reason;
    else output = `${end.kind}: ${end.output.slice(-4_000)}`;
    const lines = (await readFile(file, "utf8").catch(() => "")).split("\n").filter((line) => line !== "");
    results = new Map(lines.map((line) => JSON.parse(line) as GuestResult).map((result) => [result.name, result]));
  }, 600_000);
  afterAll(() => rm(folder, { recursive: true, force: true }));

  for (const name of names) {
    test(name, ({ skip }) => {
      // A property of the machine, e.g. a CPU with AMX, and not of the change under test: skipped under CI=true, too.
      if (whyNotBooted !== undefined) skip(whyNotBooted);
      const result = results.get(name);
      if (result === undefined) expect.fail(`no result: the guest ended early: ${output}`);
      expect(result.wrong).toEqual([]);
    });
  }
});
