/** State of a rule set for inspection; see kpng.inspect.v1 RuleSet. Counts and lists are computed on request. */
export interface InspectedRules {
  /** *Shape:* `v4`. */
  readonly name: string;
  desiredCount(): number;
  actualCount(): number;
  /** Wanted rules, one a line. */
  desired(): readonly string[];
  /** Rules that were read or committed last, one a line. */
  actual(): readonly string[];
  /** Time of the last read of the installed rules, in milliseconds since 1970; undefined for never. */
  readonly readAtMs: number | undefined;
  /** Beginning of the last transaction; "" for none. */
  readonly lastTransaction: string;
  /** Time of the last transaction, in milliseconds since 1970; undefined for never. */
  readonly committedAtMs: number | undefined;
  /** Changes by other programs that the last check found and repaired, one a line. */
  readonly drift: readonly string[];
  /** Number of checks that repaired something. */
  readonly repairCount: number;
}
