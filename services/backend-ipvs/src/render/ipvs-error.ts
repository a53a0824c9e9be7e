import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of errors of kpng-ipvs. `docs/errors.md` explains each. */
export type BackendIpvsErrorCode = "IPVS_UNAVAILABLE" | "TOOL_MISSING" | "COMMIT_REJECTED" | "READ_FAILED";

/**
 * An error of the ipvs backend, thrown by `RunTool`, `prepare-kernel.ts` and `backend.ts`. A file of its own, because
 * all three need it.
 */
export class BackendIpvsError extends CodedError<BackendIpvsErrorCode> {
  override readonly name = "BackendIpvsError";
}
