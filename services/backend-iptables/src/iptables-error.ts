/** What can go wrong with the kernel's rules; each code has a row in this package's README. */
export type BackendIptablesErrorCode =
  | "IPTABLES_MISSING"
  | "IPTABLES_TOO_OLD"
  | "SAVE_FAILED"
  | "RESTORE_REFUSED"
  | "LOCK_HELD"
  | "TOOL_TIMEOUT"
  | "SYSCTL_FAILED"
  | "NO_KUBE_PROXY";

/** *Shape of the message:* `[CODE] what happened to what (numbers): the tool's own words`. */
export class BackendIptablesError extends Error {
  override readonly name = "BackendIptablesError";
  readonly code: BackendIptablesErrorCode;

  constructor(code: BackendIptablesErrorCode, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
