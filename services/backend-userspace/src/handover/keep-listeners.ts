import cluster, { type Worker } from "node:cluster";
import { createLog } from "@kpng/process/log.ts";
import type { HeldPlaces, KeeperMessage, ServerMessage } from "./messages.ts";

/** Whether a command line or its environment asks for a keeper of the listeners (`--handover`). Pure. */
export function wantsHandover(args: readonly string[], env: Readonly<Record<string, string | undefined>>): boolean {
  if (args.includes("--handover=false")) return false;
  if (args.includes("--handover") || args.includes("--handover=true")) return true;
  return /^(1|true|yes)$/i.test(env.KPNG_HANDOVER ?? "");
}

/**
 * Keeps the listening sockets and lets another process serve: the same program with the same arguments. At SIGUSR2, the
 * keeper starts it again, and ends the old process when the new one serves; the sockets stay open meanwhile, with the
 * connections that wait in them.
 *
 * `main.ts` runs it instead of the backend with `--handover`. Separate from `Handover`, the other side, because this
 * process loads no backend.
 *
 * The sockets are shared as those of workers of node:cluster: the keeper opens each and accepts from none. A process
 * that ends by itself after it has served is started again; its connections and listeners end with it.
 *
 * SIGTERM and SIGINT end all processes. The exit status is that of the process that ended last.
 */
export function keepListeners(): void {
  const log = createLog();
  const sendTo = (worker: Worker | undefined, message: KeeperMessage): void => {
    if (worker?.isConnected() === true) worker.send(message);
  };
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  let serving: Worker | undefined;
  let next: Worker | undefined;
  let isHandingOver = false;
  let isEnding = false;

  const start = (places: HeldPlaces): void => {
    const worker = cluster.fork();
    next = worker;
    worker.on("message", (message: ServerMessage) => {
      if (message.kind === "begun") sendTo(worker, { kind: "places", places });
      else if (message.kind === "places") {
        if (!isEnding) start(message.places);
      } else if (worker === next) {
        if (serving !== undefined) log.info("another process serves now", { pid: worker.process.pid });
        sendTo(serving, { kind: "succeeded" });
        [serving, next, isHandingOver] = [worker, undefined, false];
      }
    });
    worker.on("exit", (status) => onExit(worker, status ?? 1));
  };
  const onExit = (worker: Worker, status: number): void => {
    const [wasServing, wasNext] = [worker === serving, worker === next];
    if (wasServing) serving = undefined;
    if (wasNext) next = undefined;
    if (isEnding) {
      if (Object.keys(cluster.workers ?? {}).length === 0) process.exit(status);
    } else if (wasServing) {
      log.error("the process that serves has ended: starting it again", { status });
      isHandingOver = false;
      if (next === undefined) start([]);
    } else if (wasNext && serving !== undefined) {
      log.error("the new process ended before it served: the old one goes on", { status });
      isHandingOver = false;
      sendTo(serving, { kind: "continue" });
    } else if (wasNext) {
      process.exit(status);
    }
  };
  process.on("SIGUSR2", () => {
    if (isHandingOver || isEnding || serving === undefined) return;
    isHandingOver = true;
    sendTo(serving, { kind: "hold" });
  });
  for (const signal of ["SIGTERM", "SIGINT"]) {
    process.on(signal, () => {
      if (isEnding) process.exit(130);
      isEnding = true;
      for (const worker of Object.values(cluster.workers ?? {})) {
        // A starting process may not receive messages yet.
        if (worker !== undefined && worker === next) worker.process.kill("SIGTERM");
        else sendTo(worker, { kind: "stop" });
      }
    });
  }
  start([]);
}
