/** One cell of the fault matrix: a fault of the watcher, its moment, and the rules in the kernel. */
export interface FaultCell {
  /** Moment of the fault; "upgrade": a restart on rules of a release that stored no record with them. */
  readonly phase: "start" | "running" | "restart" | "reboot" | "upgrade";
  /** The watcher from then on: none, a new one, one with an old state, or one that sends an invalid stream. */
  readonly watcher: "away" | "restarted" | "stale" | "hostile";
  /** Rules in the kernel: after a reboot, "installed" ones are old and were restored by another program. */
  readonly rules: "installed" | "absent" | "damaged" | "foreign";
  /** Endpoint that must answer at the cluster IP in the end; "" for none. */
  readonly wanted: string;
  /** Whether /healthz must answer 200 in the end. */
  readonly isHealthy: boolean;
}

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

/** Returns the line for a cell without fault. */
export function expectedRun(cell: FaultCell): CellRun {
  return { cell, result: { reached: cell.wanted, isHealthy: cell.isHealthy } };
}
