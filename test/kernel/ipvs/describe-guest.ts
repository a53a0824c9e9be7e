import { symlinkSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWhere } from "../../cluster/describe-where.ts";
import { runInGuest, whyNoGuest } from "../../guest/guest.ts";
import { bundlePrograms } from "../../process/bundle-programs.ts";
import { bundlesVariable } from "../../process/program-file.ts";
import type { GuestResult } from "./guest-results.ts";

/** Checks that one guest runs. */
interface GuestChecks {
  /** Program inside the guest, which writes `GuestResults`. *Shape:* `test/kernel/ipvs/guest-main.ts`. */
  readonly program: string;
  /**
   * Files that the program expects in its own folder, the programs that it starts among them. If they are given, all of
   * these programs are bundled, because in QEMU each start from sources takes seconds. Default: none.
   */
  readonly siblings?: readonly string[] | undefined;
  readonly names: readonly string[];
  /** The checks that run in QEMU, where each takes ten times as long; the others are skipped. Default: `names`. */
  readonly emulatedNames?: readonly string[] | undefined;
  /** Additional variables for the program. Default: none. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
}

/** Time limit of a guest, in milliseconds. With a load of 10, all scenarios take 20 minutes, and in QEMU more than 40. */
const guestMs = Number(process.env.KPNG_GUEST_MS ?? 3_600_000);

/**
 * Has a test for each check. One guest runs all of them: its start and its network take as long as several scenarios.
 */
export function describeGuest(
  title: string,
  { program, siblings, names, emulatedNames = names, environment }: GuestChecks,
): void {
  describeWhere(`${title}, with the kernel of a guest`, whyNoGuest(), () => {
    let folder: string;
    let whyNotBooted: string | undefined;
    let isEmulated = false;
    let output = "";
    let results: ReadonlyMap<string, GuestResult> = new Map();

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "kpng-guest-"));
      const file = join(folder, "results.jsonl");
      const path = siblings === undefined ? program : bundleWithSiblings(folder, [program, ...siblings]);
      if (siblings === undefined) bundlePrograms(folder);
      const end = await runInGuest({
        folder,
        command: [process.execPath, path, file, JSON.stringify(names)],
        emulatedCommand: [process.execPath, path, file, JSON.stringify(emulatedNames)],
        environment: {
          NODE_COMPILE_CACHE: "/tmp/node-compile",
          // What must happen may take long on one emulated CPU.
          KPNG_ANSWER_MS: "30000",
          KPNG_PATIENCE_MS: "240000",
          [bundlesVariable]: folder,
          ...environment,
        },
        timeoutMs: guestMs,
      });
      if (end.kind === "not-booted") whyNotBooted = end.reason;
      else {
        // Seeds and counts, also of a run that succeeds.
        process.stdout.write(end.output);
        isEmulated = end.isEmulated;
        output = `${end.kind}:\n${end.output.trimEnd().split("\n").slice(-40).join("\n")}`;
      }
      const lines = (await readFile(file, "utf8").catch(() => "")).split("\n").filter((line) => line !== "");
      results = new Map(lines.map((line) => JSON.parse(line) as GuestResult).map((result) => [result.name, result]));
    }, guestMs + 40_000);
    afterAll(() => rm(folder, { recursive: true, force: true }));

    for (const name of names) {
      test(name, ({ skip }) => {
        if (whyNotBooted !== undefined && process.env.CI === "true") expect.fail(whyNotBooted);
        if (whyNotBooted !== undefined) skip(whyNotBooted);
        const result = results.get(name);
        if (isEmulated && !emulatedNames.includes(name)) return skip("takes too long in QEMU");
        if (result === undefined) {
          // The first test without a result shows why, for all.
          const shown = output;
          output = "see the first test without a result";
          expect.fail(`no result: the guest ended early: ${shown}`);
        }
        expect(result.wrong).toEqual([]);
      });
    }
  });
}

/** Bundles our programs and these, and links the other files; returns the path of the first one's bundle. */
function bundleWithSiblings(folder: string, files: readonly string[]): string {
  const isProgram = (file: string): boolean => file.endsWith(".ts");
  bundlePrograms(folder, Object.fromEntries(files.filter(isProgram).map((file) => [basename(file, ".ts"), file])));
  for (const file of files) {
    const target = isProgram(file) ? `${basename(file, ".ts")}.mjs` : resolve(file);
    symlinkSync(target, join(folder, basename(file)));
  }
  return join(folder, basename(files[0] ?? ""));
}
