import { CodedError } from "@kpng/process/process-error.ts";

/** Error codes of the parts that all backends share; docs/errors.md has a row for each. */
export type BackendErrorCode =
  | "BAD_STREAM"
  | "STREAM_LOST"
  | "NO_VIEW"
  | "VIEW_DIVERGED"
  | "VIEW_TOO_LARGE"
  | "STATE_BEHIND"
  | "CONNTRACK_FAILED"
  | "SYSCTL_FAILED"
  | "STATE_FILE"
  | "BAD_CONFIG";

/**
 * Error of this package, with one of its codes; most of its folders throw it, and `followView` decides by the code what
 * to do next. The failures of one backend have a class in the backend's package.
 */
export class BackendError extends CodedError<BackendErrorCode> {
  override readonly name = "BackendError";
}
