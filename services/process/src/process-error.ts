import { CodedError } from "./coded-error.ts";

/** What can go wrong in what all processes share; each code has a row in docs/errors.md. */
export type ProcessErrorCode =
  | "BAD_OPTION"
  | "LISTEN_FAILED"
  | "TLS_FILES"
  | "BACKEND_FAILED"
  | "REQUEST_FAILED"
  | "OUTPUT_FAILED";

/** An error of what all processes share. */
export class ProcessError extends CodedError<ProcessErrorCode> {
  override readonly name = "ProcessError";
}
