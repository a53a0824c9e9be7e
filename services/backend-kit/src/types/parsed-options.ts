/** Parsed options of a backend, keyed by commander's names: `--callout-arg` is `calloutArg`. */
export type ParsedOptions = Readonly<Record<string, unknown>>;

/** Returns the value of a string option; undefined if it is not set. */
export function textOption(options: ParsedOptions, name: string): string | undefined {
  const value = options[name];
  return typeof value === "string" ? value : undefined;
}
