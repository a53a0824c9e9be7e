import { type Log, reasonOf } from "@kpng/process/log.ts";

/**
 * Collects the failures of a cleanup, which continues after a failure so that one failing tool does not leave
 * everything else installed. Each failure is logged immediately, and the first one is the result.
 */
export class CleanupFailures {
  readonly #log: Log;
  readonly #errors: unknown[] = [];

  constructor(log: Log) {
    this.#log = log;
  }

  /** Runs a step. Returns its result; undefined if it failed. */
  async attempt<Result>(step: () => Promise<Result>): Promise<Result | undefined> {
    try {
      return await step();
    } catch (error) {
      this.add(error);
      return undefined;
    }
  }

  add(error: unknown): void {
    this.#log.error("cleanup is not complete", { reason: reasonOf(error) });
    this.#errors.push(error);
  }

  /** Throws the first failure, if there is any. Call it after the last step. */
  end(): void {
    if (this.#errors.length > 0) throw this.#errors[0];
  }
}
