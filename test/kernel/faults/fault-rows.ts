import type { FaultCell } from "./fault-cell.ts";
import { type FaultSubject, type FaultSubjectName, faultSubjects } from "./fault-subject.ts";

const [none, older, newer] = ["", "10.0.1.1", "10.0.1.2"];

/**
 * Endpoints that must answer, for each moment and kind of rules, in the order of `watchers`. Some rows cannot exist:
 *
 * - start, installed or damaged: nothing was installed before; otherwise it is a restart.
 * - reboot, foreign: the kernel is empty, or another program has restored all rules ("installed").
 *
 * A stale watcher is believed if nothing newer is known of it: its view is complete and valid. After an upgrade,
 * damaged rules without a record stay so until a watcher answers, because nothing says which view they belong to;
 * health is bad until then.
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
    damaged: [newer, newer, older, newer],
    foreign: [newer, newer, older, newer],
  },
  reboot: {
    installed: [newer, newer, older, newer],
    absent: [newer, newer, older, newer],
    damaged: [newer, newer, older, newer],
  },
  upgrade: {
    installed: [newer, newer, older, newer],
    absent: [newer, newer, older, newer],
    damaged: [none, newer, older, none],
    foreign: [newer, newer, older, newer],
  },
};

const allWatchers = ["away", "restarted", "stale", "hostile"] as const;

/** The cells of one test: those of a moment and a kind of rules. */
export interface FaultRow {
  readonly phase: FaultCell["phase"];
  readonly rules: FaultCell["rules"];
  readonly cells: readonly FaultCell[];
}

/** Returns the rows of the fault matrix that a backend is tested in; its `FaultSubject` says why others are missing. */
export function faultRows(name: FaultSubjectName): readonly FaultRow[] {
  const { make, leftOut = {}, endsWithProcess = false, watchers = allWatchers }: FaultSubject = faultSubjects[name];
  return (Object.keys(matrix) as FaultCell["phase"][]).flatMap((phase) =>
    (Object.keys(matrix[phase]) as FaultCell["rules"][])
      .filter((rules) => make[rules] !== undefined && leftOut[phase]?.[rules] === undefined)
      .map((rules): FaultRow => {
        const cells = (matrix[phase][rules] ?? []).map((wanted, at): FaultCell => {
          const watcher = allWatchers[at] ?? "away";
          // Nothing to serve is no fault; rules that serve nothing, or that a process took with it, are one.
          const isHealthy = wanted !== none || !(rules === "damaged" || endsWithProcess);
          return { phase, rules, watcher, wanted, isHealthy };
        });
        return { phase, rules, cells: cells.filter(({ watcher }) => watchers.includes(watcher)) };
      }),
  );
}
