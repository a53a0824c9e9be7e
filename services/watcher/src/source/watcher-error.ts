import { CodedError } from "@kpng/process/process-error.ts";

/** Codes of the errors of this package; each has a row in docs/errors.md. */
export type WatcherErrorCode = "BAD_INPUT" | "STATE_TOO_LARGE" | "WRITE_FAILED";

/** Error of @kpng/watcher. Errors of options, listeners and TLS files are a `ProcessError`. */
export class WatcherError extends CodedError<WatcherErrorCode> {
  override readonly name = "WatcherError";
}
