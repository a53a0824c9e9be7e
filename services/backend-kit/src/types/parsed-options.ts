/** Values of options by the names that commander gives them. */
export type ParsedOptions = Readonly<Record<string, unknown>>;
