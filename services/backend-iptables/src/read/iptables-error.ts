import { CodedError } from "@kpng/process/coded-error.ts";

/** `docs/errors.md` explains each code. */
type BackendIptablesErrorCode =
  | "IPTABLES_MISSING"
  | "IPTABLES_TOO_OLD"
  | "SAVE_FAILED"
  | "TABLE_INCOMPATIBLE"
  | "CHAINS_IN_USE"
  | "RESTORE_REFUSED"
  | "LOCK_HELD"
  | "TOOL_TIMEOUT";

/**
 * The failure of an iptables tool, thrown by the folders `read` and `commit`. A file of its own, because all files that
 * run a tool need it.
 */
export class BackendIptablesError extends CodedError<BackendIptablesErrorCode> {
  override readonly name = "BackendIptablesError";
}
