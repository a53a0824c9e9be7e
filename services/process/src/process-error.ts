/** What can go wrong in what all processes share; each code has a row in docs/errors.md. */
export type ProcessErrorCode =
  | "BAD_OPTION"
  | "LISTEN_FAILED"
  | "TLS_FILES"
  | "BACKEND_FAILED"
  | "REQUEST_FAILED"
  | "OUTPUT_FAILED";

/** *Shape of the message:* `[CODE] what happened to what: the tool's own words`. */
export class ProcessError extends Error {
  override readonly name = "ProcessError";
  readonly code: ProcessErrorCode;

  constructor(code: ProcessErrorCode, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
