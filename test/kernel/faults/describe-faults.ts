import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { test, vi } from "vitest";
import { describePackets, useLaboratory } from "../describe-packets.ts";
import { type FaultCell, type FaultSubject, type FaultSubjectName, faultSubjects } from "./fault-subject.ts";

/** The cell at the end of a run. */
export interface FaultResult {
  /** Endpoint that answers; "" if the connection is refused; otherwise what happened to it, in parentheses. */
  readonly reached: string;
  /** Whether /healthz answers 200. */
  readonly isHealthy: boolean;
}

/** A line of JSON that `run-cells.ts` prints for a cell. */
export interface CellRun {
  readonly cell: FaultCell;
  readonly result: FaultResult;
}

const [none, older, newer] = ["", "10.0.1.1", "10.0.1.2"];

/**
 * Endpoints that must answer, for each moment and kind of rules, in the order of `watchers`. Some rows cannot exist:
 *
 * - start, installed or damaged: nothing was installed before; otherwise it is a restart.
 * - reboot, foreign: the kernel is empty, or another program has restored all rules ("installed").
 *
 * A stale watcher is believed if nothing newer is known of it: its view is complete and valid. After a restart, rules
 * that packets reach stay as they are until a watcher answers, because they may be newer than the saved view.
 */
const matrix: Readonly<Record<FaultCell["phase"], Partial<Record<FaultCell["rules"], readonly string[]>>>> = {
  start: { absent: [none, newer, older, none], foreign: [none, newer, older, none] },
  running: {
    installed: [newer, newer, older, newer],
    absent: [newer, newer, older, newer],
    damaged: [newer, newer, older, newer],
    foreign: [newer, newer, older, newer],
  },
  restart: {
    installed: [newer, newer, older, newer],
    absent: [newer, newer, older, newer],
    damaged: [none, newer, older, none],
    foreign: [newer, newer, older, newer],
  },
  reboot: {
    installed: [newer, newer, older, newer],
    absent: [newer, newer, older, newer],
    damaged: [newer, newer, older, newer],
  },
};

const watchers = ["away", "restarted", "stale", "hostile"] as const;

/** Returns the rows of the fault matrix that a backend is tested in; its `FaultSubject` says why others are missing. */
export function faultRows(name: FaultSubjectName) {
  const { make, leftOut = {}, noticesDamage = false, endsWithProcess = false }: FaultSubject = faultSubjects[name];
  return (Object.keys(matrix) as FaultCell["phase"][]).flatMap((phase) =>
    (Object.keys(matrix[phase]) as FaultCell["rules"][])
      .filter((rules) => make[rules] !== undefined && leftOut[phase]?.[rules] === undefined)
      .map((rules) => {
        const isNoticed = noticesDamage && phase === "restart" && rules === "damaged";
        const cells = (matrix[phase][rules] ?? []).map((each, at): FaultCell => {
          const wanted = isNoticed && each === none ? newer : each;
          // Nothing to serve is no fault; rules that a process took with it are one.
          const isHealthy = wanted !== none || !endsWithProcess;
          return { phase, rules, watcher: watchers[at] ?? "away", wanted, isHealthy };
        });
        return { phase, rules, cells };
      }),
  );
}

const program = fileURLToPath(new URL("run-cells.ts", import.meta.url));

/**
 * Tests a backend in each cell of the fault matrix: a fault of the watcher, its moment, and the rules that it meets.
 */
export function describeFaults(subject: FaultSubjectName): void {
  // Some cells wait 3 s for a watcher, during which others can run, and up to 30 s for an event.
  vi.setConfig({ testTimeout: 180_000, maxConcurrency: 9 });
  describePackets(`kpng-${subject}: what fails, when, and with which rules`, () => testCells(subject));
}

function testCells(subject: FaultSubjectName): void {
  const laboratory = useLaboratory();
  test.concurrent.for(faultRows(subject))(
    "$phase, rules $rules: the expected endpoint answers, and health is true",
    async (row, context) => {
      const { phase, rules, cells } = row;
      const name = `${phase}-${rules}`;
      await laboratory().add(name);
      const { stdout, stderr, exitCode } = await run(laboratory(), name, [program, subject, JSON.stringify(cells)]);
      const results = stdout.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as CellRun]));
      context
        .expect(results, `exit status ${exitCode}: ${stderr}`)
        .toEqual(cells.map((cell): CellRun => ({ cell, result: { reached: cell.wanted, isHealthy: cell.isHealthy } })));
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
