import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename, dirname } from "node:path";

/** What the parts of a release share. */
export interface Release {
  readonly version: string;
  /** Commit of the sources. */
  readonly commit: string;
  /** Time of all files in archives, in seconds since 1970: SOURCE_DATE_EPOCH, otherwise the time of the commit. */
  readonly epoch: number;
  /** Copy of the sources that has the version of the release (stage.ts). */
  readonly stage: string;
  /** Folder that the release is written to. */
  readonly out: string;
}

/** Runs a command and returns its output. Errors: throws with the command's stderr if it fails. */
export function run(command: readonly string[], options: { readonly cwd?: string } = {}): string {
  const [program = "", ...args] = command;
  return execFileSync(program, args, { ...options, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

/**
 * Packs a folder or a file with GNU tar. The archive contains the last part of `path`, and depends only on names,
 * contents and the executable bit. `file` is compressed with gzip.
 */
export function archive({ epoch }: Release, path: string, file: string): void {
  const fixed = ["--sort=name", `--mtime=@${epoch}`, "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"];
  const what = ["--mode=u=rwX,go=rX", "--use-compress-program=gzip -9n", `--directory=${dirname(path)}`];
  run(["tar", ...fixed, ...what, `--file=${file}`, "--create", basename(path)]);
}

export function digestOf(path: string, algorithm: "sha1" | "sha256"): string {
  return createHash(algorithm).update(readFileSync(path)).digest("hex");
}

/** Writes a line about the progress to standard error. */
export function say(text: string): void {
  process.stderr.write(`release: ${text}\n`);
}
