import { CodedError } from "@kpng/process/process-error.ts";

/** Codes of the errors of this package; each has a row in docs/errors.md. */
export type WatcherErrorCode = "BAD_INPUT" | "STATE_TOO_LARGE" | "WRITE_FAILED";

/** Error of @kpng/watcher. Errors about options, listeners and TLS files are of class `ProcessError`. */
export class WatcherError extends CodedError<WatcherErrorCode> {
  override readonly name = "WatcherError";
}
