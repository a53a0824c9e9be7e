import type { ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/**
 * Waits until a program has created its unix socket. The demo and tests call it before they start the client of that
 * program. Separate from `Laboratory`, because the dry run of the demo has none.
 *
 * Errors: the program ended, or no socket within a minute.
 */
export async function waitForSocket(program: ChildProcess, path: string): Promise<void> {
  const deadlineMs = performance.now() + 60_000;
  while (!existsSync(path)) {
    if (program.exitCode !== null) throw new Error(`exit status ${program.exitCode} before ${path} existed`);
    if (performance.now() > deadlineMs) throw new Error(`no socket ${path} within 60 s`);
    await sleep(5);
  }
}
