import { type Log, reasonOf } from "@kpng/process/log.ts";

/**
 * Failures of a cleanup, which does all that it can: each failure is logged at once, and the first one is the result.
 * The backends nft, iptables, ipvs and ebpf run the steps of `--cleanup` with it, so that one tool that fails does not
 * keep the rest installed.
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

  /** Adds a failure. */
  add(error: unknown): void {
    this.#log.error("cleanup is not complete", { reason: reasonOf(error) });
    this.#errors.push(error);
  }

  /** Throws the first failure, if there is any. Call it after the last step. */
  end(): void {
    if (this.#errors.length > 0) throw this.#errors[0];
  }
}
