/**
 * What a backend says of rules that it commits together; see kpng.inspect.v1 RuleSet. Counts and lists are made when
 * asked.
 */
export interface RuleSetState {
  /** E.g. "v4". */
  readonly name: string;
  desiredCount(): number;
  actualCount(): number;
  /** What should stand, one rule a line. */
  desired(): readonly string[];
  /** What stood when it last looked, or was since then committed. */
  actual(): readonly string[];
  /** When it last read what stands, in milliseconds since 1970; undefined for never. */
  readonly readAtMs: number | undefined;
  /** What it last handed over; "" for nothing. */
  readonly lastTransaction: string;
  readonly committedAtMs: number | undefined;
  /** What somebody else had changed when it last looked. */
  readonly drift: readonly string[];
  /** Times that it undid somebody else's changes. */
  readonly repairCount: number;
}
