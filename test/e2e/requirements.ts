import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { findBinaries, isBuilt } from "../cluster/binaries.ts";
import { isExecutable } from "../cluster/child.ts";
import { whyNoGuest } from "../guest/guest.ts";
import { hasTestImages } from "./images/test-images.ts";
import type { ProxyName } from "./options.ts";
import { programs } from "./program-paths.ts";

/** Commands of Debian packages that a cluster needs, and their packages. */
const packageByCommand: Readonly<Record<string, string>> = {
  "/usr/bin/containerd": "containerd",
  "/usr/sbin/runc": "runc",
  "/usr/lib/cni/bridge": "containernetworking-plugins",
  "/bin/busybox": "busybox-static",
  "/usr/bin/curl": "curl",
};

/** Returns the reason why this machine cannot run a cluster at all; undefined if it probably can. */
export function whyNoCluster(): string | undefined {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return "a cluster needs root on Linux";
  const missing = Object.entries(packageByCommand).filter(([command]) => !isExecutable(command));
  if (missing.length === 0) return undefined;
  return `not installed: ${missing.map(([, name]) => name).join(", ")} (Debian packages)`;
}

/**
 * Returns the reason why a proxy cannot serve nodes on this machine, whose kernel they share, nor in a guest; undefined
 * if it can.
 */
export function whyNoProxy(proxy: ProxyName): string | undefined {
  if (proxy === "ebpf" && !existsSync("/sys/fs/cgroup/unified/cgroup.procs")) {
    // Programs attached to the root would serve the processes of this machine, too.
    return "--backend ebpf needs a cgroup of version 2 for each node, in /sys/fs/cgroup/unified";
  }
  if (!needsGuest(proxy)) return undefined;
  // Without a word, no guest with Debian's kernel in emulation: its nodes are not ready within minutes.
  if (process.env.KPNG_GUEST_KERNEL !== undefined || process.env.KPNG_GUEST !== undefined) return whyNoGuest();
  const needed = `--backend ${proxy} needs IPVS in the kernel of this machine (module ip_vs): ${whyNoIpvs()}`;
  return `${needed}; or KPNG_GUEST_KERNEL, the kernel of a guest (test/guest/build-kernel.sh)`;
}

/** Whether the nodes of a proxy run in a guest, because the kernel of this machine lacks IPVS. */
export function needsGuest(proxy: ProxyName): boolean {
  return proxy.endsWith("ipvs") && whyNoIpvs() !== undefined;
}

function whyNoIpvs(): string | undefined {
  const { error, status, stderr } = spawnSync("ipvsadm", ["-S", "-n"], { encoding: "utf8" });
  if (status === 0) return undefined;
  // Without the program, there is no output.
  if (error !== undefined) return error.message;
  const lines = stderr.trim().split("\n");
  return lines.find((line) => line.startsWith("Can't")) ?? `exit ${status}`;
}

/** Finds or builds the programs. *Cost:* a quarter of an hour the first time, on two cores. */
export function findPrograms() {
  return findBinaries(programs);
}

/** Whether programs and images are in the cache, so that a cluster can start within a minute. */
export async function isCached(): Promise<boolean> {
  if (!programs.every((program) => isBuilt(program))) return false;
  const binaries = await findPrograms();
  return binaries.kind === "found" && hasTestImages(binaries.paths);
}
