import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { ProgramCgroup } from "@kpng/backend-kit/exec/run-program.ts";

/**
 * Name of a cgroup, with the id of the process that created it. While that process runs, no other removes the cgroup.
 */
const namePattern = /^kpng-program-(\d+)-/;

/**
 * Creates a cgroup below that of this process, for one run; disposing of it removes its directory, or leaves that to a
 * later run if processes are still in it. Returns the reason as an error if that is not possible: no cgroup v2, no right to write to it, or a
 * kernel before 5.14, which has no `cgroup.kill`.
 */
export function createProgramCgroup(): (ProgramCgroup & Disposable) | Error {
  try {
    const own = ownCgroup();
    removeEmpty(own);
    const path = join(own, `kpng-program-${process.pid}-${randomUUID()}`);
    mkdirSync(path);
    const cgroup = makeCgroup(path, own);
    if (!existsSync(join(path, "cgroup.kill"))) {
      cgroup[Symbol.dispose]();
      return new Error("the kernel has no cgroup.kill (it needs Linux 5.14)");
    }
    // A cgroup that cannot be entered or left fails here, before a program depends on it.
    enter(path);
    enter(own);
    return cgroup;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

function makeCgroup(path: string, own: string): ProgramCgroup & Disposable {
  return {
    // Node.js cannot spawn into a cgroup, and moving the child afterwards would miss what it has forked by then.
    start: (spawn) => {
      attempt(() => enter(path));
      try {
        return spawn();
      } finally {
        attempt(() => enter(own));
      }
    },
    kill: () => {
      attempt(() => {
        // If the move back failed, the signal would end this process too.
        if (!containsUs(path)) writeFileSync(join(path, "cgroup.kill"), "1");
      });
    },
    [Symbol.dispose]: () => removeEmpty(own),
  };
}

/** Moves this process, with all its threads. */
function enter(path: string): void {
  writeFileSync(join(path, "cgroup.procs"), "0");
}

function containsUs(path: string): boolean {
  return readFileSync(join(path, "cgroup.procs"), "utf8").split("\n").includes(String(process.pid));
}

/** Removes cgroups of earlier runs, and of processes that are gone. The kernel keeps a cgroup that has processes. */
function removeEmpty(own: string): void {
  for (const name of readdirSync(own)) {
    const pid = namePattern.exec(name)?.[1];
    if (pid === undefined || (Number(pid) !== process.pid && existsSync(`/proc/${pid}`))) continue;
    attempt(() => rmdirSync(join(own, name)));
  }
}

/** Without the cgroup a run still works, and its process group is killed; a program must not fail for it. */
function attempt(action: () => void): void {
  try {
    action();
  } catch {
    // The next run reports a cgroup that cannot be used.
  }
}

/** Returns the directory of this process's cgroup. Throws an error if no cgroup2 file system shows it. */
function ownCgroup(): string {
  const path = /^0::(.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1];
  if (path === undefined) throw new Error("this process is in no cgroup v2");
  for (const line of readFileSync("/proc/self/mountinfo", "utf8").split("\n")) {
    const [, root, mountPoint] = /^\S+ \S+ \S+ (\S+) (\S+) .* - cgroup2 /.exec(line) ?? [];
    if (root === undefined || mountPoint === undefined) continue;
    // Without a cgroup namespace, a container's mount begins at its own cgroup.
    const candidate = join(mountPoint, relative(root, path));
    if (existsSync(join(candidate, "cgroup.procs")) && containsUs(candidate)) return candidate;
  }
  throw new Error("no cgroup2 file system with the cgroup of this process is mounted");
}
