import { CodedError } from "@kpng/process/coded-error.ts";

/** What can go wrong in what all backends share; the README of this package has a row for each code. */
export type BackendErrorCode =
  | "BAD_STREAM"
  | "STREAM_LOST"
  | "NO_VIEW"
  | "VIEW_DIVERGED"
  | "CONNTRACK_MISSING"
  | "CONNTRACK_FAILED"
  | "SYSCTL_FAILED"
  | "STATE_FILE"
  | "BAD_CONFIG"
  | "NO_WATCHER_ADDRESS";

/** An error of what all backends share. */
export class BackendError extends CodedError<BackendErrorCode> {
  override readonly name = "BackendError";
}
