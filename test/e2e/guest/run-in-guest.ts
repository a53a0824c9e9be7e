import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { runInGuest } from "../../guest/guest.ts";
import { makeImageStore } from "../cluster/image-store.ts";
import { makeRunFolder, removeAllButLogs } from "../cluster/run-folder.ts";
import type { ProxyRun } from "../run-proxy.ts";
import type { TestResult } from "../suite/report.ts";

/** Run that the guest reads, as JSON. Its options are the arguments of the command line. */
export type GuestRun = Omit<ProxyRun, "options"> & { readonly args: readonly string[] };

/** Longest duration of a guest. All tests take an hour or two. */
const guestMs = 3 * 3_600_000;

/** Memory of a guest: programs, images and what the containers write. */
const memoryMiB = 8_192;

/** Folder for what a cluster writes: an empty one that each machine has. */
const guestCache = "/mnt";

/**
 * Runs Kubernetes' tests with one proxy in a guest, whose kernel has IPVS: the whole cluster, with the images that this
 * machine has made.
 *
 * Errors: no guest boots; the cluster does not start, or the tests end without results, with the guest's output.
 */
export async function runProxyInGuest(
  { proxy, paths, images, options }: ProxyRun,
  args: readonly string[],
): Promise<readonly TestResult[]> {
  const folder = makeRunFolder();
  // The guest is a process group of its own, which ends in the handler of `exit`.
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(2));
  const [runFile, resultsFile] = [join(folder, "run.json"), join(folder, "results.json")];
  try {
    const run: GuestRun = { proxy, paths, images: join(guestCache, "kpng/e2e/images"), args };
    await makeImageStore(images, join(folder, "images"));
    writeFileSync(runFile, JSON.stringify(run));
    const script = (name: string): string => join(import.meta.dirname, name);
    const end = await runInGuest({
      folder,
      command: [script("guest.sh"), folder, process.execPath, script("guest-main.ts"), runFile, resultsFile],
      environment: { XDG_CACHE_HOME: guestCache },
      memoryMiB,
      cpus: availableParallelism(),
      timeoutMs: guestMs,
    });
    if (end.kind === "not-booted") throw new Error(end.reason);
    process.stderr.write(end.output);
    if (!existsSync(resultsFile)) throw new Error(`${proxy}: the guest ended without results (${end.kind})`);
    return JSON.parse(readFileSync(resultsFile, "utf8")) as readonly TestResult[];
  } finally {
    if (options.keep) {
      removeAllButLogs(folder);
      process.stderr.write(`e2e: ${proxy}: the files of the guest are in ${folder}\n`);
    } else rmSync(folder, { recursive: true, force: true });
  }
}
