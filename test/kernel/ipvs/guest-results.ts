import { appendFileSync } from "node:fs";

/** Result of one check in the guest. An empty list is a success. */
export interface GuestResult {
  readonly name: string;
  readonly wrong: readonly string[];
  readonly elapsedMs: number;
}

/**
 * Writes the results of a program in the guest: `PROGRAM RESULTS NAMES`. Each result is a line of the file RESULTS, so
 * that those of a program that ends early are there. NAMES is a JSON array with the names of the checks to run.
 * `describeGuest` reads the file.
 */
export class GuestResults {
  readonly #file: string;
  readonly #wanted: ReadonlySet<unknown>;

  constructor([, , file = "", names = "[]"]: readonly string[]) {
    this.#file = file;
    this.#wanted = new Set(JSON.parse(names));
  }

  /** Returns true if one of the names is wanted. */
  wantsAny(names: readonly string[]): boolean {
    return names.some((name) => this.#wanted.has(name));
  }

  /** Runs a check if its name is wanted, and writes its result; an error is one, too. */
  async report(name: string, check: () => Promise<readonly string[]>): Promise<void> {
    if (!this.#wanted.has(name)) return;
    const startMs = performance.now();
    const wrong = await check().catch((error: unknown) => [
      error instanceof Error ? (error.stack ?? "") : String(error),
    ]);
    const result: GuestResult = { name, wrong, elapsedMs: Math.round(performance.now() - startMs) };
    appendFileSync(this.#file, `${JSON.stringify(result)}\n`);
    process.stdout.write(`${(result.elapsedMs / 1_000).toFixed(1)} s: ${name}\n`);
  }
}
