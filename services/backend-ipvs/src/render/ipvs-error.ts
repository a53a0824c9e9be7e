import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of errors of kpng-ipvs. `docs/errors.md` explains each. */
export type BackendIpvsErrorCode = "IPVS_UNAVAILABLE" | "TOOL_MISSING" | "COMMIT_REJECTED" | "READ_FAILED";

/**
 * An error of the ipvs backend, thrown by the folders `read` and `commit`. It is defined here because `render` is the
 * lowest folder of the package.
 */
export class BackendIpvsError extends CodedError<BackendIpvsErrorCode> {
  override readonly name = "BackendIpvsError";
}
