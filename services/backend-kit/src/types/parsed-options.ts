/** Parsed options of a backend, by commander's names: `--callout-arg` is `calloutArg`. */
export type ParsedOptions = Readonly<Record<string, unknown>>;
