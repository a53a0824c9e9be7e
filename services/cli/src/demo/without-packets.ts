import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { network } from "@kpng/laboratory/one-node.ts";
import { toolEnvironment } from "@kpng/laboratory/run-command.ts";
import { waitForSocket } from "@kpng/laboratory/wait-for-socket.ts";
import { copyManifests } from "./manifests.ts";
import { type Running, startCallout, startWatcher } from "./processes.ts";

/**
 * Returns the rules that the node would get, where no packet can be sent: the same processes on the same manifests, but
 * the program at the end only prints. It neither reads nor changes this machine's rules.
 *
 * Errors: if the rules do not come within 10 s, with what the processes said. Nothing is left behind.
 */
export async function renderWithoutPackets(signal: AbortSignal): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "kpng-demo-"));
  const running: Running[] = [];
  const start = ([program = "", ...options]: readonly string[]) =>
    spawn(program, options, { env: toolEnvironment(), stdio: ["ignore", "pipe", "pipe"] });
  try {
    const manifests = join(folder, "manifests");
    const socket = join(folder, "proxy.sock");
    await copyManifests(manifests);
    const watcher = startWatcher(start, manifests, socket);
    running.push(watcher);
    await waitForSocket(watcher.child, socket);
    const callout = startCallout(start, network.node.name, socket, ["--dry-run"]);
    running.push(callout);
    const limitMs = performance.now() + 10_000;
    for (;;) {
      const rules = rulesIn(callout.output());
      if (rules !== undefined) return rules;
      if (performance.now() > limitMs) throw new Error("no rules came within 10 s");
      await sleep(20, undefined, { signal });
    }
  } catch (error) {
    const said = running.map(({ shown, output }) => `${shown}\n${output()}`).join("\n");
    throw new Error(`${error instanceof Error ? error.message : String(error)}\n${said}`.trim(), { cause: error });
  } finally {
    for (const { child } of running) child.kill();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Both families' transactions, once both are there. */
function rulesIn(output: string): string | undefined {
  const transactions = output.match(/^# ip6?tables-restore[\s\S]*?^COMMIT$/gm) ?? [];
  return transactions.length < 2 ? undefined : transactions.join("\n");
}
