/** A long-lived part of a process. */
export interface Task {
  /** Name in logs and metrics, e.g. "source/kube". */
  readonly name: string;
  /**
   * Runs until `signal` aborts, then resolves. Rejects on a failure that the task cannot mend itself: the process then
   * ends, and its supervisor starts it again.
   */
  run(signal: AbortSignal): Promise<void>;
}
