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

export class BackendError extends CodedError<BackendErrorCode> {
  override readonly name = "BackendError";
}
