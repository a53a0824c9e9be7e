import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { type BackendCallbacks, type BackendTaskOptions, backendTask } from "../backend/backend-task.ts";
import { createInstantWait, createReadableLog } from "./steps.ts";

/** A backend of a test, for the node n1 of the watcher at `api`. Waits end at once, unless the test sets `wait`. */
export function runBackendTask(
  api: string,
  callbacks: BackendCallbacks,
  options: Partial<Omit<BackendTaskOptions, keyof BackendCallbacks>> = {},
) {
  const [health, metrics] = [new Health(), new Registry()];
  const { log, lines } = createReadableLog();
  const stop = new AbortController();
  const task = backendTask({
    ...callbacks,
    name: "test",
    transport: dial({ api }),
    nodeName: "n1",
    log,
    health,
    metrics,
    wait: createInstantWait().wait,
    ...options,
  });
  /** Resolves when the task has ended. */
  const ended = task.run(stop.signal);
  const end = (): Promise<void> => {
    stop.abort();
    return ended;
  };
  return { health, metrics, lines, ended, end };
}
