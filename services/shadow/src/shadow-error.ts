import { CodedError } from "@kpng/process/coded-error.ts";

/** Error codes of shadow mode; `docs/errors.md` has a row for each. */
export type ShadowErrorCode = "NO_KUBE_PROXY" | "IPTABLES_MISSING" | "SAVE_FAILED";

/** Error while reading kube-proxy's rules, thrown by `openKubeProxy`, `readNftables` and `shadowTask`. */
export class ShadowError extends CodedError<ShadowErrorCode> {
  override readonly name = "ShadowError";
}
