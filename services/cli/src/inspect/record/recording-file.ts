import { closeSync, fchmodSync, fstatSync, openSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { ProcessError } from "@kpng/process/process-error.ts";
import { formatRecordingLine, type RecordingLine } from "@kpng/watcher/source/replay/recording.ts";

/**
 * A recording that is being written. It gets its name only when it is complete. All methods are synchronous, so that a
 * process that must end at once can still complete the file.
 */
interface RecordingFile {
  write(line: RecordingLine): void;
  /** Completes the file and gives it its name, or removes it if it cannot be written. */
  complete(): void;
  /** Removes the incomplete file. */
  discard(): void;
}

/**
 * Creates a recording at `path` with a suffix, readable only by its owner; compressed if `path` ends in ".gz". Up to
 * {@link maxPendingLength} characters are held in memory.
 *
 * Errors, also of its methods: REQUEST_FAILED if the file cannot be written.
 *
 * `writeRecording` calls it. Separate from it, because this file knows nothing about watchers. `readRecording` of the
 * watcher reads such files.
 */
export function createRecordingFile(path: string): RecordingFile {
  // A rename would replace a device such as /dev/null by a file.
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
    throw new ProcessError("REQUEST_FAILED", `cannot write ${path}: it exists and is not a regular file`);
  }
  const partPath = `${path}.part`;
  const file = openPrivateFile(partPath);
  let pending = "";
  const flush = (): void => {
    try {
      // A gzip file may have several members, each compressed on its own.
      writeFileSync(file, path.endsWith(".gz") ? gzipSync(pending) : pending);
    } catch (cause) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${partPath}`, { cause });
    }
    pending = "";
  };
  const discard = (): void => {
    closeSync(file);
    rmSync(partPath, { force: true });
  };
  return {
    write: (line) => {
      pending += `${formatRecordingLine(line)}\n`;
      if (pending.length > maxPendingLength) flush();
    },
    complete: () => {
      try {
        flush();
      } catch (error) {
        discard();
        throw error;
      }
      closeSync(file);
      renameSync(partPath, path);
    },
    discard,
  };
}

/** Long enough to compress well; short enough to be compressed within some 20 ms. */
const maxPendingLength = 1 << 20;

/**
 * Creates or empties a file that only its owner may read, also if it existed with other rights. Returns its descriptor.
 * `kpng bug-report` calls it too. Errors: REQUEST_FAILED.
 */
export function openPrivateFile(path: string): number {
  try {
    const file = openSync(path, "w", 0o600);
    if (fstatSync(file).isFile()) fchmodSync(file, 0o600);
    return file;
  } catch (cause) {
    throw new ProcessError("REQUEST_FAILED", `cannot write ${path}`, { cause });
  }
}
