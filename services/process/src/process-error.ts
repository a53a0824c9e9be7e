import { CodedError } from "./coded-error.ts";

/** Codes of {@link ProcessError}. */
export type ProcessErrorCode =
  | "BAD_OPTION"
  | "LISTEN_FAILED"
  | "TLS_FILES"
  | "TOKEN_FILE"
  | "BACKEND_FAILED"
  | "REQUEST_FAILED"
  | "OUTPUT_FAILED";

/**
 * An error of a process as a whole: an option, a listener, a file that an option names, or a command that failed. This
 * package, the backends and `kpng` throw it. For their other errors, packages have classes and codes of their own.
 */
export class ProcessError extends CodedError<ProcessErrorCode> {
  override readonly name = "ProcessError";
}
