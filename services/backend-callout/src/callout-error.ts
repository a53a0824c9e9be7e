/** What can go wrong with the program of the callout backend; each code has a row in docs/errors.md. */
export type CalloutErrorCode =
  | "INPUT_FAILED"
  | "PROGRAM_MISSING"
  | "PROGRAM_FAILED"
  | "PROGRAM_KILLED"
  | "PROGRAM_TIMEOUT";

/** *Shape of the message:* `[CODE] what happened to what: the program's own words`. */
export class CalloutError extends Error {
  override readonly name = "CalloutError";
  readonly code: CalloutErrorCode;

  constructor(code: CalloutErrorCode, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
