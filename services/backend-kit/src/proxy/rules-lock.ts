import { createServer, type Server } from "node:net";
import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";

/** Options of {@link lockRules}. */
export interface RulesLockOptions {
  /** Rules to be managed. *Shape:* `iptables KPNG-`. */
  readonly name: string;
  readonly log: Log;
  readonly health: Health;
}

/** Time between two attempts, in milliseconds. */
const retryMs = 500;

const healthPart = "rules-lock";

/**
 * Waits until no other process manages the same rules in this network namespace, and keeps others from it until it is
 * closed. `serveTask` calls it: two instances with one chain prefix or table would undo each other's rules without end.
 * During an update, the new instance waits here until the old one has ended, and is not ready until then. A DaemonSet
 * with `maxSurge` deletes the old pod only when the new one is ready: such an update stops at its first node. Separate
 * from `serveTask`, because it knows nothing about the rules except their name.
 *
 * The lock is a listening unix socket with an abstract name: the kernel removes it with its process, and each network
 * namespace has its own, as it has its own rules. Any process of the namespace can hold it. The lock of the iptables
 * tools is another one: it protects single transactions of all programs.
 *
 * Returns undefined if `signal` aborts first.
 */
export async function lockRules(options: RulesLockOptions, signal: AbortSignal): Promise<AsyncDisposable | undefined> {
  const { name, log, health } = options;
  let isReported = false;
  while (!signal.aborted) {
    const server = await listen(`\0kpng/rules/${name}`);
    if (server !== undefined) {
      if (isReported) log.info("the other process has ended: managing the rules", { rules: name });
      health.setReady(healthPart);
      return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) };
    }
    if (!isReported)
      log.error(
        "another process manages the same rules: waiting until it ends; a DaemonSet with maxSurge never ends it",
        { rules: name },
      );
    isReported = true;
    health.setWaiting(healthPart, `another process of this node manages the rules ${name}`);
    await waitMs(retryMs, signal);
  }
  return undefined;
}

/** Opens the socket that is the lock; returns undefined if another process has it. */
function listen(path: string): Promise<Server | undefined> {
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(undefined);
      else reject(error);
    });
    server.listen(path, () => resolve(server));
  });
}
