import { CodedError } from "./coded-error.ts";

/**
 * Codes of the errors of this package. The functions for options, listeners, TLS files and runs of commands throw them.
 */
export type ProcessErrorCode =
  | "BAD_OPTION"
  | "LISTEN_FAILED"
  | "TLS_FILES"
  | "TOKEN_FILE"
  | "BACKEND_FAILED"
  | "REQUEST_FAILED"
  | "OUTPUT_FAILED";

/**
 * An error in a part that all processes share, such as options or listeners. Other packages have error classes and
 * codes of their own.
 */
export class ProcessError extends CodedError<ProcessErrorCode> {
  override readonly name = "ProcessError";
}
