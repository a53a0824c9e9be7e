import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of errors of kpng-userspace. `docs/errors.md` explains each. */
type BackendUserspaceErrorCode = "ENTRY_UNAVAILABLE" | "ENTRY_FAILED" | "NOTHING_LISTENS";

/** An error of the userspace backend. */
export class BackendUserspaceError extends CodedError<BackendUserspaceErrorCode> {
  override readonly name = "BackendUserspaceError";
}
