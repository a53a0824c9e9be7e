import { existsSync, rmSync, statSync } from "node:fs";
import { connect } from "node:net";
import { dirname } from "node:path";
import { ProcessError } from "../process-error.ts";

/**
 * Removes the unix socket that a killed process left behind. Keeps a socket that another process serves, and any other
 * kind of file. Called before a process listens on a unix socket.
 *
 * Errors: LISTEN_FAILED if the process cannot listen on the path.
 *
 * `listen` of a watcher and the inspection server of a backend call it.
 */
export async function removeStaleSocket(path: string): Promise<void> {
  // listen() would report EACCES, "permission denied".
  if (!existsSync(dirname(path)))
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: folder ${dirname(path)} does not exist`);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket())
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: the path is a file that is not a socket`);
  const isServed = await new Promise<boolean>((resolve) => {
    const probe = connect(path, () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", () => resolve(false));
  });
  if (isServed)
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: another process listens on it`);
  rmSync(path);
}
