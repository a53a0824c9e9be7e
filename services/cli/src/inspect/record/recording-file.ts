import { once } from "node:events";
import { createWriteStream, fchmodSync, fstatSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { finished } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { ProcessError } from "@kpng/process/process-error.ts";
import { formatRecordingLine, type RecordingLine } from "@kpng/watcher/source/replay/recording.ts";

/** A recording that is being written. It gets its name only when it is complete. */
interface RecordingFile {
  write(line: RecordingLine): Promise<void>;
  /** Completes the file and gives it its name. */
  complete(): Promise<void>;
  /** Removes the incomplete file. */
  discard(): void;
}

/**
 * Creates a recording at `path` with a suffix, readable only by its owner; compressed if `path` ends in ".gz".
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
  // Opened at once: a stream that opens the file later could create it again after `discard`.
  const sink = createWriteStream(partPath, { fd: openPrivateFile(partPath) });
  const gzip = path.endsWith(".gz") ? createGzip() : undefined;
  gzip?.pipe(sink);
  const stream = gzip ?? sink;
  const failed = new Promise<never>((_, reject) => {
    sink.once("error", (cause) => reject(new ProcessError("REQUEST_FAILED", `cannot write ${partPath}`, { cause })));
  });
  failed.catch(() => undefined);
  return {
    write: async (line) => {
      const hasRoom = stream.write(`${formatRecordingLine(line)}\n`);
      await Promise.race([failed, hasRoom ? undefined : once(stream, "drain")]);
    },
    complete: async () => {
      stream.end();
      await Promise.race([failed, finished(sink)]);
      renameSync(partPath, path);
    },
    discard: () => {
      sink.destroy();
      rmSync(partPath, { force: true });
    },
  };
}

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
