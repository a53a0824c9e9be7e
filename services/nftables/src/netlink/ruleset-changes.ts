import type { BatchStep } from "./element-batch.ts";

/** The generation of the kernel has 32 bits, and 0 is skipped. */
const maxGeneration = 0xffff_ffff;

/**
 * Knows whether the ruleset of this network namespace has been changed by anyone else. The connections of both families
 * share one, because the kernel counts all changes of a namespace in one number, the generation.
 *
 * A commit that names the expected generation is refused if there was another change (ERESTART). If it succeeds, it
 * made the next generation, and no other change came before it.
 */
export class RulesetChanges {
  /** The newest generation up to which all changes are known. */
  #expected: number | undefined;
  #foreign = 0;

  /** The generation to name in the next commit; undefined if it must be read first. */
  get expected(): number | undefined {
    return this.#expected;
  }

  /**
   * Records a commit of these steps that named `generation` and succeeded. The kernel does not count a transaction that
   * changes nothing, such as a put of elements that exist; the next change, by any program, takes its number. So the
   * generation is unknown after a commit of puts only.
   */
  committed(generation: number, steps: readonly BatchStep[]): void {
    const isCounted = steps.some(
      (step) => step.kind === "chain" || (step.kind === "delete" && step.elements.length > 0),
    );
    this.#expected = isCounted && generation < maxGeneration ? generation + 1 : undefined;
  }

  /** Records that there was, or may have been, a change by another program. */
  disturbed(): void {
    this.#foreign += 1;
    this.#expected = undefined;
  }

  /** Records the current generation; returns a number that differs from the last one if others changed anything. */
  read(generation: number): number {
    if (generation !== this.#expected) this.disturbed();
    this.#expected = generation;
    return this.#foreign;
  }
}
