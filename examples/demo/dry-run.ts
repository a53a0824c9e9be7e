import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { toolEnvironment, waitForSocket } from "@kpng/laboratory/laboratory.ts";
import { network } from "@kpng/laboratory/one-node.ts";
import { copyManifests, type Running, startCallout, startWatcher, withOutput } from "./processes.ts";

/**
 * Returns the rules that the node would get, for machines that cannot send packets in namespaces. The demo prints
 * them there instead of sending packets.
 *
 * Runs the same processes on the same manifests, but the example's program only prints its rules: it neither reads nor
 * changes those of this machine. Errors: no rules within 10 s, with the output of the processes. Nothing is left
 * behind.
 */
export async function renderRules(signal: AbortSignal): Promise<string> {
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
    const deadlineMs = performance.now() + 10_000;
    for (;;) {
      const rules = rulesIn(callout.output());
      if (rules !== undefined) return rules;
      if (performance.now() > deadlineMs) throw new Error("no rules within 10 s");
      await sleep(20, undefined, { signal });
    }
  } catch (error) {
    throw withOutput(error, running);
  } finally {
    for (const { child } of running) child.kill();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Returns the transactions of both families, or undefined until both are printed. */
function rulesIn(output: string): string | undefined {
  const transactions = output.match(/^# ip6?tables-restore[\s\S]*?^COMMIT$/gm) ?? [];
  return transactions.length < 2 ? undefined : transactions.join("\n");
}
