import type { KeyText } from "../layout/keys.ts";
import { maxDescribed } from "../tables/ebpf-change.ts";
import type { WantedFrontend } from "../tables/wanted-service.ts";

/** State of one call of `FamilyTables`, and its result, which `SocketRuleSet` describes. */
export class TablesChange {
  /** At most `maxDescribed`. */
  readonly described: { readonly wanted: WantedFrontend; readonly isNew: boolean }[] = [];
  written = 0;
  readonly deleted: KeyText[] = [];
  /** New frontends that wait for `#publish`. */
  readonly added: { readonly keys: KeyText[]; readonly slots: number[] } = { keys: [], slots: [] };
  readonly removals = new Set<KeyText>();
  /** First elements of the runs of this call. */
  readonly runs = new Map<Buffer, number>();
  readonly unusedRuns = new Set<number>();
  #committing: (() => void) | undefined;

  constructor(committing: () => void) {
    this.#committing = committing;
  }

  note(wanted: WantedFrontend, isNew: boolean): void {
    this.written++;
    if (this.described.length < maxDescribed) this.described.push({ wanted, isNew });
  }

  /** Announces the first write. */
  begin(): void {
    this.#committing?.();
    this.#committing = undefined;
  }
}
