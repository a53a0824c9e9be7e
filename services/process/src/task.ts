/** A long-lived part of a process: a server, source, sink or sync loop. {@link runTasks} runs tasks. */
export interface Task {
  /** Name of the task in logs and metrics, e.g. "source/kube". */
  readonly name: string;
  /**
   * Runs until `signal` aborts, then resolves. Rejects on a failure that the task cannot recover from; the process then
   * exits, and its supervisor restarts it.
   */
  run(signal: AbortSignal): Promise<void>;
}

/**
 * Runs tasks concurrently until `signal` aborts or one of them rejects. Then aborts the others, waits for all of them,
 * and rejects with the first failure, if any. If a task resolves before the abort, the others continue.
 */
export async function runTasks(tasks: readonly Task[], signal: AbortSignal): Promise<void> {
  const failure = new AbortController();
  const combined = AbortSignal.any([signal, failure.signal]);
  await Promise.all(
    tasks.map(async (task) => {
      try {
        await task.run(combined);
      } catch (error) {
        failure.abort(error);
      }
    }),
  );
  if (failure.signal.aborted) throw failure.signal.reason;
}

/**
 * Runs `main` with its companions, e.g. its source or a status server. They are aborted when `main` has ended or a task
 * rejects; when `signal` aborts, they run until `main` has ended, because it may still need them. See {@link runTasks}.
 */
export async function runWithMain(main: Task, companions: readonly Task[], signal: AbortSignal): Promise<void> {
  const done = new AbortController();
  const ending: Task = {
    name: main.name,
    run: (stop) => main.run(AbortSignal.any([signal, stop])).finally(() => done.abort()),
  };
  await runTasks([ending, ...companions], done.signal);
}
