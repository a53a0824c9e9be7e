import type { Task } from "../task.ts";

/**
 * Runs tasks concurrently until `signal` aborts or one of them rejects. Then aborts the others, waits for all, and
 * rejects with the first failure. A task may resolve before the abort; the others continue.
 *
 * `runWithMain` calls it, and so do programs that embed a watcher. Separate from `runProcess`, which knows no tasks.
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
 * Runs `main` together with the tasks that it depends on. These are aborted when `main` has ended, also if `signal`
 * aborts or a task rejects; see {@link runTasks}. The commands of watchers and backends run all their parts with it.
 */
export async function runWithMain(main: Task, dependencies: readonly Task[], signal: AbortSignal): Promise<void> {
  const done = new AbortController();
  const ending: Task = {
    name: main.name,
    run: (stop) => main.run(AbortSignal.any([signal, stop])).finally(() => done.abort()),
  };
  await runTasks([ending, ...dependencies], done.signal);
}
