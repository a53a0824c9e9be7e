/** What can go wrong in what all backends share; the README of this package has a row for each code. */
export type BackendErrorCode =
  | "BAD_STREAM"
  | "STREAM_LOST"
  | "NO_VIEW"
  | "VIEW_DIVERGED"
  | "CONNTRACK_MISSING"
  | "CONNTRACK_FAILED"
  | "STATE_FILE"
  | "BAD_CONFIG"
  | "NO_WATCHER_ADDRESS";

/** *Shape of the message:* `[CODE] what happened to what: the tool's own words`. */
export class BackendError extends Error {
  override readonly name = "BackendError";
  readonly code: BackendErrorCode;

  constructor(code: BackendErrorCode, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
