import { CodedError } from "@kpng/process/coded-error.ts";

/** What can go wrong with the program of the callout backend; each code has a row in docs/errors.md. */
export type CalloutErrorCode =
  | "INPUT_FAILED"
  | "PROGRAM_MISSING"
  | "PROGRAM_FAILED"
  | "PROGRAM_KILLED"
  | "PROGRAM_TIMEOUT";

/** An error with the program of the callout backend. */
export class CalloutError extends CodedError<CalloutErrorCode> {
  override readonly name = "CalloutError";
}
