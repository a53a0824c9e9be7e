import { CodedError } from "@kpng/process/coded-error.ts";

/** Failures of a run of the program; each code has a row in docs/errors.md. */
type CalloutErrorCode = "INPUT_FAILED" | "PROGRAM_MISSING" | "PROGRAM_FAILED" | "PROGRAM_KILLED" | "PROGRAM_TIMEOUT";

/**
 * A failed run of the callout backend's program. A file of its own, because `runCallout` and the files that open its
 * pipes throw it.
 */
export class CalloutError extends CodedError<CalloutErrorCode> {
  override readonly name = "CalloutError";
}
