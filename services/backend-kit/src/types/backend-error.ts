import { CodedError } from "@kpng/process/coded-error.ts";

/** Error codes of the parts that all backends share; docs/errors.md has a row for each. */
export type BackendErrorCode =
  | "BAD_STREAM"
  | "STREAM_LOST"
  | "NO_VIEW"
  | "VIEW_DIVERGED"
  | "VIEW_TOO_LARGE"
  | "STATE_BEHIND"
  | "CONNTRACK_MISSING"
  | "CONNTRACK_FAILED"
  | "SYSCTL_FAILED"
  | "STATE_FILE"
  | "BAD_CONFIG"
  | "NO_WATCHER_ADDRESS";

/**
 * Error of a part that all backends share. A backend's own failures have a class in its package, e.g.
 * `BackendIptablesError`.
 */
export class BackendError extends CodedError<BackendErrorCode> {
  override readonly name = "BackendError";
}
