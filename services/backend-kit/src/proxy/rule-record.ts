/**
 * A record that a rule set stores with its rules, in the same transaction, so that it is lost with them. The next run
 * of the program reads it before it uses a saved view, the view that the previous run stored on disk. `FamilyRules`
 * writes it and compares it; rule sets that outlive their process store it as text.
 */
export interface RuleRecord {
  /** Boot in which the rules were committed; "" if it is unknown. */
  readonly bootId: string;
  /** Digest of the plans that the rules were made from; see `PlanDigest`. */
  readonly digest: string;
}

/** Returns a record as text. *Shape:* `boot=36c8f5e2-7d0e-4b52-9d6e-6d3f6b0c8f11,plans=8c6a3f0d12345678`. */
export function formatRecord({ bootId, digest }: RuleRecord): string {
  return `boot=${bootId},plans=${digest}`;
}

/** Parses the text of a record; undefined if it is not one. */
export function parseRecord(text: string): RuleRecord | undefined {
  const match = /^boot=([0-9a-f-]*),plans=([0-9a-f]{16})$/.exec(text);
  const [, bootId, digest] = match ?? [];
  return bootId === undefined || digest === undefined ? undefined : { bootId, digest };
}

/** The rules that a rule set finds installed, as far as the use of a saved view depends on them. */
export type InstalledState =
  /** No rules; or rules without a record that packets do not reach. */
  | { readonly kind: "absent" }
  /** Rules without a record that can be read, such as those of an older release. */
  | { readonly kind: "unmarked" }
  | { readonly kind: "marked"; readonly record: string };

/**
 * How a saved view is used in one family.
 *
 * - install: its rules replace whatever is installed.
 * - repair: its rules are those that were committed last; differences are changes by other programs.
 * - frame: the installed rules may be newer; only jumps and fixed chains are restored.
 * - keep: nothing is known about the installed rules; they stay as they are.
 */
export type SavedViewUse = "install" | "repair" | "frame" | "keep";

/**
 * Decides how a saved view is used. `saved` is the record that the rules of the saved view would have now. Pure. The
 * reasons are in docs/decisions/0035.
 */
export function chooseUse(installed: InstalledState, saved: RuleRecord): SavedViewUse {
  if (installed.kind === "absent") return "install";
  const record = installed.kind === "marked" ? parseRecord(installed.record) : undefined;
  if (record === undefined) return "keep";
  // The kernel has restarted since then, so another program has restored old rules.
  if (record.bootId !== saved.bootId) return "install";
  return record.digest === saved.digest ? "repair" : "frame";
}
