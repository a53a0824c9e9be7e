import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type GuestEnd, runInGuest, whyNoGuest } from "../../guest/guest.ts";
import { type CellRun, expectedRun } from "./fault-cell.ts";
import { faultRows } from "./fault-rows.ts";

const missing = whyNoGuest();
const cells = faultRows("ipvs").flatMap((row) => row.cells);

// One guest runs all cells, because its start takes as long as one of them.
describe("kpng-ipvs: what fails, when, and with which rules, with the kernel of a guest", () => {
  if (missing !== undefined) {
    if (process.env.CI === "true") test("can run", () => expect.fail(missing));
    else test.skip(`can run (skipped: ${missing})`, () => undefined);
    return;
  }
  let folder: string;
  let end: GuestEnd;
  let runs: readonly CellRun[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "kpng-guest-"));
    end = await runInGuest({
      folder,
      command: [
        ...["unshare", "--net", "--mount", process.execPath, "test/kernel/faults/run-cells.ts"],
        ...["ipvs", JSON.stringify(cells)],
      ],
      environment: { NODE_COMPILE_CACHE: "/tmp/node-compile", KPNG_PATIENCE_MS: "90000" },
      timeoutMs: 560_000,
    });
    if (end.kind === "not-booted") return;
    runs = end.output.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line) as CellRun] : []));
  }, 600_000);
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test.for(cells)("$phase, rules $rules, watcher $watcher", (cell, { skip }) => {
    if (end.kind === "not-booted" && process.env.CI === "true") expect.fail(end.reason);
    if (end.kind === "not-booted") return skip(end.reason);
    const { phase, rules, watcher } = cell;
    const isOf = ({ cell: other }: CellRun): boolean =>
      other.phase === phase && other.rules === rules && other.watcher === watcher;
    const said = `${end.kind}: ${end.output.slice(-4_000)}`;
    expect(runs.find(isOf), said).toEqual(expectedRun(cell));
  });
});
