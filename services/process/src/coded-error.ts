/**
 * An error with a code that has a row in docs/errors.md. Nearly every package has a subclass with a closed set of codes
 * of its own, such as `ProcessError` and `WatcherError`; this is what they share.
 *
 * *Shape of the message:* `[CODE] what happened to what: the tool's own words`.
 */
export abstract class CodedError<Code extends string> extends Error {
  readonly code: Code;

  constructor(code: Code, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
