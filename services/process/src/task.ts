/**
 * A long-lived part of a process. Servers, sources, sinks and sync loops are tasks; {@link runTasks} runs them. A file
 * of its own, so that a task need not import how it is run.
 */
export interface Task {
  /** Name in logs and metrics, e.g. "source/kube". */
  readonly name: string;
  /**
   * Runs until `signal` aborts, then resolves. Rejects on a failure that the task cannot recover from: the process then
   * exits, and its supervisor restarts it.
   */
  run(signal: AbortSignal): Promise<void>;
}
