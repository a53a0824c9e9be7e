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
  | "RULES_DAMAGED"
  | "STATE_FILE"
  | "BAD_CONFIG"
  | "NO_WATCHER_ADDRESS";

/**
 * Error of a part of the kit, which all backends share: its parts throw it, and the code of the stream and of conntrack
 * reads its code. A backend's own failures have a class in its package, e.g. `BackendIptablesError`.
 */
export class BackendError extends CodedError<BackendErrorCode> {
  override readonly name = "BackendError";
}
