import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of errors of kpng-ipvs. `docs/errors.md` explains each. */
export type BackendIpvsErrorCode =
  | "IPVS_UNAVAILABLE"
  | "TOOL_MISSING"
  | "COMMIT_REJECTED"
  | "READ_FAILED"
  | "MOVE_TOO_EARLY"
  | "POLICY_BYPASS";

/**
 * An error of the ipvs backend, thrown by `RunTool`, `backend.ts` and files of `commit/`. A file of its own,
 * because all of them need it.
 */
export class BackendIpvsError extends CodedError<BackendIpvsErrorCode> {
  override readonly name = "BackendIpvsError";
}
