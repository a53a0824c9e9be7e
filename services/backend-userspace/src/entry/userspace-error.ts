import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of errors of kpng-userspace. `docs/errors.md` explains each. */
export type BackendUserspaceErrorCode = "ENTRY_UNAVAILABLE" | "ENTRY_FAILED" | "NOTHING_LISTENS";

/** An error of the userspace backend. It is defined here because `entry` is the lowest folder that throws it. */
export class BackendUserspaceError extends CodedError<BackendUserspaceErrorCode> {
  override readonly name = "BackendUserspaceError";
}
