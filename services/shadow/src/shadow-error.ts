import { CodedError } from "@kpng/process/coded-error.ts";

/** Error codes of shadow mode; `docs/errors.md` has a row for each. */
type ShadowErrorCode = "NO_KUBE_PROXY" | "IPTABLES_MISSING" | "SAVE_FAILED";

/**
 * Error while reading kube-proxy's rules. `openKubeProxy`, `readNftables` and `shadowTask` throw it, which is why it
 * has a file of its own.
 */
export class ShadowError extends CodedError<ShadowErrorCode> {
  override readonly name = "ShadowError";
}
