/** What can go wrong in the watcher; each code has a row in docs/errors.md. */
export type WatcherErrorCode = "BAD_INPUT" | "WRITE_FAILED";

/** *Shape of the message:* `[CODE] what happened to what: the tool's own words`. */
export class WatcherError extends Error {
  override readonly name = "WatcherError";
  readonly code: WatcherErrorCode;

  constructor(code: WatcherErrorCode, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
