/**
 * Remembers which problems of each object were logged, so that each is logged once, and again only when it changes.
 * `RepeatLimit` limits log lines by time instead.
 *
 * `ObjectCache` asks it before it logs. Separate, because it knows only texts, not objects.
 *
 * *Bound:* 20 texts for each object that has a problem.
 */
export class ReportedTexts {
  #textsByKey = new Map<string, ReadonlySet<string>>();

  /**
   * Replaces the texts of an object, and returns those that are new, at most 20. Two texts that differ only in the
   * index of an array are the same: entries move when another one is added.
   */
  update(key: string, texts: readonly string[]): readonly string[] {
    if (texts.length === 0) {
      this.#textsByKey.delete(key);
      return [];
    }
    const before = this.#textsByKey.get(key);
    const shown = texts.slice(0, maxTexts);
    this.#textsByKey.set(key, new Set(shown.map(withoutIndexes)));
    return shown.filter((text) => before?.has(withoutIndexes(text)) !== true);
  }

  /** Forgets the objects that a complete list does not contain. */
  keepOnly(keys: ReadonlySet<string>): void {
    for (const key of this.#textsByKey.keys()) if (!keys.has(key)) this.#textsByKey.delete(key);
  }
}

const maxTexts = 20;

function withoutIndexes(text: string): string {
  return text.replaceAll(/\[\d+\]/g, "[]");
}
