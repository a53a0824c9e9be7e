import { CodedError } from "@kpng/process/coded-error.ts";

/** What can go wrong in the watcher; each code has a row in docs/errors.md. */
export type WatcherErrorCode = "BAD_INPUT" | "WRITE_FAILED";

/** An error of the watcher. */
export class WatcherError extends CodedError<WatcherErrorCode> {
  override readonly name = "WatcherError";
}
