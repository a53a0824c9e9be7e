import { chmodSync, existsSync, lstatSync, mkdirSync, readlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";

/** Options of {@link lockRules}. */
interface RulesLockOptions {
  /** Rules to be managed. *Shape:* `iptables KPNG-`. */
  readonly name: string;
  readonly log: Log;
  readonly health: Health;
  /** Folders for the file of the lock; the first that can be used is. Default: {@link lockFolders}. */
  readonly folders?: readonly string[] | undefined;
}

/** Time between two attempts, in milliseconds. */
const retryMs = 500;

const healthPart = "rules-lock";

/** SQLITE_BUSY: another process or connection has the lock. */
const busy = 5;

/**
 * Waits until no other process manages the same rules in this network namespace, and keeps others from it until it is
 * closed: two instances with one chain prefix or table would undo each other's rules without end. During an update, the new instance waits here until the old one has ended, and is not ready until then. A
 * DaemonSet with `maxSurge` deletes the old pod only when the new one is ready: such an update stops at its first node.
 *
 * The lock is a lock of the kernel (fcntl) on a file in a folder that only this user can enter, so that no other user
 * can hold it: neither on the file, nor by a file or link in its place. The kernel releases it with its process,
 * however that ends, and the empty file that stays means nothing. Its name has the number of the network namespace, as
 * each has its own rules. Node.js takes such locks only for its SQLite, so the file is an empty database that is locked
 * and never written. The lock of the iptables tools is another one: it protects single transactions of all programs.
 *
 * Where no folder can be used, as in `unshare -Urn` without XDG_RUNTIME_DIR or on a read-only file system, the rules are
 * managed without the lock, and a log line says so: an abstract socket, which needs no folder, could be held by any process of the namespace.
 *
 * Returns undefined if `signal` aborts first.
 */
export async function lockRules(options: RulesLockOptions, signal: AbortSignal): Promise<Disposable | undefined> {
  const { name, log, health, folders = lockFolders() } = options;
  const file = `${encodeURIComponent(name)}@${networkNamespace()}`;
  let isReported = false;
  while (!signal.aborted) {
    const attempt = tryLock(folders, file);
    if (attempt.kind !== "held") {
      if (attempt.kind === "unusable") {
        log.error("no folder for the lock of the rules: another process with the same rules would not be noticed", {
          rules: name,
          reason: attempt.reason,
        });
      } else if (isReported) log.info("the other process has ended: managing the rules", { rules: name });
      health.setReady(healthPart);
      return attempt.kind === "locked" ? attempt.lock : { [Symbol.dispose]: () => undefined };
    }
    if (!isReported)
      log.error(
        "another process manages the same rules: waiting until it ends; a DaemonSet with maxSurge never ends it",
        { rules: name },
      );
    isReported = true;
    health.setWaiting(healthPart, `another process of this node manages the rules ${name}`);
    await waitMs(retryMs, signal);
  }
  return undefined;
}

/**
 * Folders for locks: below the folder of the node that holds views, too, which our DaemonSets mount, so that containers
 * share it; and for a user other than root, the folder of the user's session.
 */
function lockFolders(): readonly string[] {
  const { XDG_RUNTIME_DIR: ofSession = "" } = process.env;
  return ["/var/lib/kpng/locks", ...(ofSession === "" ? [] : [join(ofSession, "kpng-locks")])];
}

/** *Shape:* `4026531840`. "" without /proc. */
function networkNamespace(): string {
  try {
    return readlinkSync("/proc/self/ns/net").replace(/\D/g, "");
  } catch {
    return "";
  }
}

type Attempt =
  | { readonly kind: "locked"; readonly lock: Disposable }
  | { readonly kind: "held" }
  | { readonly kind: "unusable"; readonly reason: string };

function tryLock(folders: readonly string[], file: string): Attempt {
  const reasons: string[] = [];
  for (const folder of folders) {
    try {
      makePrivate(folder);
      return { kind: "locked", lock: lockFile(join(folder, file)) };
    } catch (error) {
      if (error instanceof Error && "errcode" in error && error.errcode === busy) return { kind: "held" };
      reasons.push(`${folder}: ${reasonOf(error)}`);
    }
  }
  return { kind: "unusable", reason: reasons.join("; ") };
}

/** Makes a folder that no other user can enter. Errors: it is a link or the folder of another user. */
function makePrivate(folder: string): void {
  // Not recursive: where mkdir fails with ENOENT below an existing folder, as in /proc, Node.js would try without end.
  for (const each of [dirname(folder), folder]) {
    try {
      if (!existsSync(each)) mkdirSync(each, { mode: 0o700 });
    } catch (error) {
      // Another process that starts now was faster.
      if (!existsSync(each)) throw error;
    }
  }
  const found = lstatSync(folder);
  if (!found.isDirectory() || found.uid !== process.geteuid?.()) throw new Error("not a folder of this user");
  if ((found.mode & 0o077) !== 0) chmodSync(folder, 0o700);
}

function lockFile(path: string): Disposable {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // A journal in a file would stay after a crash. Where the file cannot be written, as on a read-only file system,
    // SQLite makes BEGIN EXCLUSIVE a shared lock without saying so; setting the version, which stays in memory, fails
    // there. Opening the file here to find out would drop the lock if this process has it: closing any descriptor does.
    database.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE; PRAGMA user_version = 0");
  } catch (error) {
    database.close();
    throw error;
  }
  return { [Symbol.dispose]: () => database.close() };
}
