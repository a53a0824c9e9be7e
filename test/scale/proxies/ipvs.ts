import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findBinaries } from "../../cluster/binaries.ts";
import { testCache } from "../../cluster/test-cache.ts";
import { runInGuest, whyNoGuest } from "../../guest/guest.ts";

/**
 * Compares kpng-ipvs with the real kube-proxy in ipvs mode in one run on the kernel of a guest: `npm run bench --
 * ipvs`. API server, watcher and proxies run in the guest; arguments are passed on to `ipvs-guest.ts`.
 */
const found = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
const missing = whyNoGuest() ?? (found.kind === "missing" ? found.reason : undefined);
if (missing !== undefined) {
  process.stdout.write(`cannot run: ${missing}\n`);
  process.exit(1);
}
const folder = await mkdtemp(join(tmpdir(), "kpng-guest-"));
const end = await runInGuest({
  folder,
  command: [process.execPath, "test/scale/proxies/ipvs-guest.ts", ...process.argv.slice(2)],
  environment: { XDG_CACHE_HOME: join(testCache("control-plane"), "../..") },
  memoryMiB: 3_072,
  timeoutMs: 1_500_000,
});
await rm(folder, { recursive: true, force: true });
process.stdout.write(end.kind === "not-booted" ? `cannot run: ${end.reason}\n` : end.output);
process.exit(end.kind === "exited" ? end.exitCode : 1);
