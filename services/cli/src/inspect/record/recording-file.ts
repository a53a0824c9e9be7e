import { once } from "node:events";
import { createWriteStream, renameSync, rmSync, statSync } from "node:fs";
import { finished } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { ProcessError } from "@kpng/process/process-error.ts";
import { formatRecordingLine, type RecordingLine } from "@kpng/watcher/source/replay/recording.ts";

/** A file that appears under its name when it is complete. Errors: REQUEST_FAILED if it cannot be written. */
export function openRecordingFile(path: string) {
  // A rename would put a file in the place of a device, such as /dev/null of the whole machine.
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
    throw new ProcessError("REQUEST_FAILED", `cannot write ${path}: it is there and is no file`);
  }
  const unfinished = `${path}.part`;
  const sink = createWriteStream(unfinished, { mode: 0o600 });
  const packed = path.endsWith(".gz") ? createGzip() : undefined;
  packed?.pipe(sink);
  const stream = packed ?? sink;
  const failed = new Promise<never>((_, reject) => {
    sink.once("error", (cause) => reject(new ProcessError("REQUEST_FAILED", `cannot write ${unfinished}`, { cause })));
  });
  failed.catch(() => undefined);
  return {
    write: async (line: RecordingLine): Promise<void> => {
      const isTaken = stream.write(`${formatRecordingLine(line)}\n`);
      await Promise.race([failed, isTaken ? undefined : once(stream, "drain")]);
    },
    keep: async (): Promise<void> => {
      stream.end();
      await Promise.race([failed, finished(sink)]);
      renameSync(unfinished, path);
    },
    discard: (): void => {
      sink.destroy();
      rmSync(unfinished, { force: true });
    },
  };
}
