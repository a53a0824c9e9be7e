import type { Task } from "../task.ts";

/**
 * Runs tasks side by side until `signal` aborts or one of them rejects; then aborts the others, waits for all, and
 * rejects with the first failure.
 *
 * A task that resolves before the abort has done its work; the others go on.
 */
export async function runTasks(tasks: readonly Task[], signal: AbortSignal): Promise<void> {
  const failure = new AbortController();
  const combined = AbortSignal.any([signal, failure.signal]);
  const results = await Promise.allSettled(
    tasks.map(async (task) => {
      try {
        await task.run(combined);
      } catch (error) {
        failure.abort(error);
        throw error;
      }
    }),
  );
  if (failure.signal.aborted) throw failure.signal.reason;
  const rejected = results.find((result) => result.status === "rejected");
  if (rejected !== undefined) throw rejected.reason;
}

/**
 * Runs `main` with the tasks that serve it, until it resolves, or as {@link runTasks} does: what serves it has no work
 * without it, and goes on until it has come to its end.
 */
export async function runWithMain(main: Task, beside: readonly Task[], signal: AbortSignal): Promise<void> {
  const done = new AbortController();
  const ending: Task = {
    name: main.name,
    run: (stop) => main.run(AbortSignal.any([signal, stop])).finally(() => done.abort()),
  };
  await runTasks([ending, ...beside], done.signal);
}
