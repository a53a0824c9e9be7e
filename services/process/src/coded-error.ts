/**
 * An error with a code that has a row in docs/errors.md. Each package has one subclass with its own closed set of
 * codes.
 *
 * *Shape of the message:* `[CODE] what happened to what: the tool's own words`.
 *
 * The subclasses are in files such as `process-error.ts` and `watcher-error.ts`.
 */
export abstract class CodedError<Code extends string> extends Error {
  readonly code: Code;

  constructor(code: Code, message: string, options?: ErrorOptions) {
    super(`[${code}] ${message}`, options);
    this.code = code;
  }
}
