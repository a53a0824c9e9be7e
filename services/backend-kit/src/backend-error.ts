/** What can go wrong between a watcher and a backend; each code has a row in docs/errors.md. */
export type BackendErrorCode = "BAD_STREAM" | "STREAM_LOST";

/** *Shape of the message:* `[CODE] what happened to what: the tool's own words`. */
export class BackendError extends Error {
  override readonly name = "BackendError";
  readonly code: BackendErrorCode;

  constructor(code: BackendErrorCode, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
