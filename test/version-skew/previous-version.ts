import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { join, resolve } from "node:path";

const repository = resolve(import.meta.dirname, "../..");

/** Commit that stands for the previous version as long as there is no tag. */
const commitBeforeTags = "4d97fa1";

/** A commit with an earlier version of the project, or the reason why there is none. */
export type PreviousVersion =
  | { readonly kind: "found"; readonly commit: string }
  | { readonly kind: "missing"; readonly reason: string };

/**
 * Returns the previous version: the commit in KPNG_PREVIOUS, otherwise the newest tag before this commit, otherwise
 * {@link commitBeforeTags}. A shallow clone has none of these.
 */
export function findPreviousVersion(): PreviousVersion {
  const wanted = process.env.KPNG_PREVIOUS ?? git(["describe", "--tags", "--abbrev=0", "HEAD^"]) ?? commitBeforeTags;
  const commit = git(["rev-parse", "--verify", "--quiet", `${wanted}^{commit}`]);
  if (commit !== undefined) return { kind: "found", commit };
  return { kind: "missing", reason: `this clone has no commit ${wanted} (a shallow clone?)` };
}

/**
 * Writes the sources of a commit to a folder, in which they run, and can be bundled, with the installed packages of
 * this one: dependencies of the two versions must be compatible.
 */
export function checkOut(commit: string, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const archive = execFileSync("git", ["archive", commit], { cwd: repository, maxBuffer: 1 << 30 });
  execFileSync("tar", ["-x", "-C", folder], { input: archive });
  const [packages, own] = [join(repository, "node_modules"), join(folder, "node_modules/@kpng")];
  mkdirSync(own, { recursive: true });
  for (const name of readdirSync(packages)) {
    if (name !== "@kpng") symlinkSync(join(packages, name), join(folder, "node_modules", name));
  }
  for (const name of readdirSync(join(folder, "services")))
    symlinkSync(join(folder, "services", name), join(own, name));
}

/** Returns the output of git; undefined if it fails. */
function git(args: readonly string[]): string | undefined {
  try {
    return execFileSync("git", args, { cwd: repository, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return undefined;
  }
}
