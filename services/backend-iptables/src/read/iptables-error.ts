import { CodedError } from "@kpng/process/coded-error.ts";

/** What can go wrong with the kernel's rules; each code has a row in this package's README. */
export type BackendIptablesErrorCode =
  | "IPTABLES_MISSING"
  | "IPTABLES_TOO_OLD"
  | "SAVE_FAILED"
  | "RESTORE_REFUSED"
  | "LOCK_HELD"
  | "TOOL_TIMEOUT";

/** An error with the kernel's rules. */
export class BackendIptablesError extends CodedError<BackendIptablesErrorCode> {
  override readonly name = "BackendIptablesError";
}
