import type { ServiceKey } from "@kpng/model/service.ts";

/**
 * State of a rule set for inspection; see kpng.inspect.v1 RuleSet. `RuleSets` of a service proxy provides it, and
 * `BackendInspection` reads it. Counts and lists are computed on request. An interface of its own, because `inspect/`
 * must not import the rule sets of `proxy/`.
 */
export interface InspectedRules {
  /** *Shape:* `v4`. */
  readonly name: string;
  desiredCount(): number;
  actualCount(): number;
  /** Desired rules, one per line; all, or those that serve one Service. */
  desired(service?: ServiceKey): readonly string[];
  /** Rules that were last read or committed, one per line; all, or those that serve one Service. */
  actual(service?: ServiceKey): readonly string[];
  /** Time of the last read of the installed rules, in milliseconds since 1970; undefined for never. */
  readonly readAtMs: number | undefined;
  /** Start of the last transaction; "" if there was none. */
  readonly lastTransaction: string;
  /** Time of the last transaction, in milliseconds since 1970; undefined for never. */
  readonly committedAtMs: number | undefined;
  /** Changes by other programs that the last check found and repaired, one per line. */
  readonly drift: readonly string[];
  /** Number of checks that repaired something. */
  readonly repairCount: number;
}
