/**
 * An error with a code, which has a row in docs/errors.md.
 *
 * *Shape of the message:* `[CODE] what happened to what: the tool's own words`.
 */
export abstract class CodedError<Code extends string> extends Error {
  readonly code: Code;

  constructor(code: Code, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}

/** Codes of {@link ProcessError}. */
type ProcessErrorCode =
  | "BAD_OPTION"
  | "LISTEN_FAILED"
  | "TLS_FILES"
  | "TOKEN_FILE"
  | "REQUEST_FAILED"
  | "OUTPUT_FAILED";

/**
 * An error that concerns a process as a whole: an option, a listener, a file that an option names, or a failed command.
 */
export class ProcessError extends CodedError<ProcessErrorCode> {
  override readonly name = "ProcessError";
}
