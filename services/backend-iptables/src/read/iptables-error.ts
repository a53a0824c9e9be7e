import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of failures of the iptables tools. `docs/errors.md` explains each. */
export type BackendIptablesErrorCode =
  | "IPTABLES_MISSING"
  | "IPTABLES_TOO_OLD"
  | "SAVE_FAILED"
  | "TABLE_INCOMPATIBLE"
  | "CHAINS_IN_USE"
  | "RESTORE_REFUSED"
  | "LOCK_HELD"
  | "TOOL_TIMEOUT";

/**
 * The failure of an iptables tool, thrown by the folders `read` and `commit`. The error codes have a file of their own,
 * because all files that run a tool need them.
 */
export class BackendIptablesError extends CodedError<BackendIptablesErrorCode> {
  override readonly name = "BackendIptablesError";
}
