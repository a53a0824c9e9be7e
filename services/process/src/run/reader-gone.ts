import { spawn } from "node:child_process";
import { fstatSync } from "node:fs";

/**
 * Ends this process when the reader of standard output has gone (`kpng local to-json | head -1`), also while there is
 * nothing to write. Otherwise the process would learn it only from its next write, which may be hours away.
 *
 * Node.js cannot poll a pipe that it only writes to, so tail(1) of GNU does: it dies of SIGPIPE when its standard
 * output, which is ours, has no reader. Without such a tail, and if standard output is no pipe, this does nothing.
 *
 * Commands that print for an unlimited time call it: `to-json`, `kpng get --watch`.
 */
export function endWithReader(): void {
  if (!fstatSync(1).isFIFO()) return;
  const tail = spawn("tail", ["-f", `--pid=${process.pid}`, "/dev/null"], { stdio: ["ignore", "inherit", "ignore"] });
  tail.on("error", () => undefined);
  tail.on("exit", (_code, signal) => {
    if (signal === "SIGPIPE") process.exit();
  });
  tail.unref();
  // It holds the pipe open.
  process.on("exit", () => tail.kill());
}
