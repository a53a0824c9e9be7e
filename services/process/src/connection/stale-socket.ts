import { existsSync, rmSync, statSync } from "node:fs";
import { connect } from "node:net";
import { dirname } from "node:path";
import { ProcessError } from "../process-error.ts";

/**
 * Removes the unix socket that a killed process left behind, but not one that somebody serves, and nothing that is no
 * socket.
 *
 * Errors: LISTEN_FAILED.
 */
export async function removeStaleSocket(path: string): Promise<void> {
  // The kernel's word for it would be "permission denied".
  if (!existsSync(dirname(path)))
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: there is no folder ${dirname(path)}`);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket())
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: a file is there that is no socket`);
  const isServed = await new Promise<boolean>((resolve) => {
    const probe = connect(path, () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", () => resolve(false));
  });
  if (isServed) throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: another process serves it`);
  rmSync(path);
}
