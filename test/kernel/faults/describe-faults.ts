import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, test, vi } from "vitest";
import { describePackets } from "../describe-packets.ts";
import { type CellRun, expectedRun } from "./fault-cell.ts";
import { faultRows } from "./fault-rows.ts";
import type { FaultSubjectName } from "./fault-subject.ts";

const program = fileURLToPath(new URL("run-cells.ts", import.meta.url));

/**
 * Tests a backend in each cell of the fault matrix: a fault of the watcher, its moment, and the rules that it meets.
 * The test files of this folder call it, so that all backends have the same table.
 */
export function describeFaults(subject: FaultSubjectName): void {
  // Some cells wait 3 s for a watcher, during which others can run, and up to 30 s for an event.
  vi.setConfig({ testTimeout: 180_000, maxConcurrency: 9 });
  describePackets(`kpng-${subject}: what fails, when, and with which rules`, () => testCells(subject));
}

function testCells(subject: FaultSubjectName): void {
  let laboratory: Laboratory;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
  });
  afterAll(() => laboratory.close());

  test.concurrent.for(faultRows(subject))(
    "$phase, rules $rules: the expected endpoint answers, and health is true",
    async (row, context) => {
      const { phase, rules, cells } = row;
      const name = `${phase}-${rules}`;
      await laboratory.add(name);
      const { stdout, stderr, exitCode } = await run(laboratory, name, [program, subject, JSON.stringify(cells)]);
      const results = stdout.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as CellRun]));
      context.expect(results, `exit status ${exitCode}: ${stderr}`).toEqual(cells.map(expectedRun));
    },
  );
}

/** Runs the program in a namespace. Not with `tryRun`, whose time limit a busy machine may exceed. */
async function run(laboratory: Laboratory, name: string, words: readonly string[]) {
  const child = laboratory.start(name, ["unshare", "--mount", process.execPath, ...words]);
  const output = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream]?.setEncoding("utf8").on("data", (text: string) => {
      output[stream] += text;
    });
  }
  const [exitCode] = await once(child, "close");
  return { ...output, exitCode };
}
