/**
 * A value of nft's JSON output (libnftables-json(5)) before it is decoded. `parse-nft-ruleset.ts`, `parse-nft-rule.ts`
 * and `nft-match.ts` check the type of each value with the functions of this file, which is separate because all three
 * need them.
 */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** Error for a part of a rule that the tracer does not know. `parseNftRule` catches it. */
export class NotUnderstood extends Error {
  constructor(value: Json | undefined) {
    super(`not known to the tracer: ${JSON.stringify(value)}`);
  }
}

/** Returns the only field of an object, which is how nft's JSON names kinds: `{ "drop": null }`. */
export function kindOf(value: Json | undefined): readonly [kind: string, content: Json] {
  const [only, ...others] = Object.entries(asObject(value));
  if (only === undefined || others.length > 0) throw new NotUnderstood(value);
  return only;
}

/** Returns a value that must be an object. Errors: {@link NotUnderstood}, as for the other functions of this file. */
export function asObject(value: Json | undefined): Readonly<Record<string, Json>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new NotUnderstood(value);
  return value as Readonly<Record<string, Json>>;
}

/** Returns a value that must be a list. */
export function asList(value: Json | undefined): readonly Json[] {
  if (!Array.isArray(value)) throw new NotUnderstood(value);
  return value;
}

/** Returns a value that must be a string. */
export function asText(value: Json | undefined): string {
  if (typeof value !== "string") throw new NotUnderstood(value);
  return value;
}

/** Returns a value that must be a number. */
export function asNumber(value: Json | undefined): number {
  if (typeof value !== "number") throw new NotUnderstood(value);
  return value;
}

/** Returns the key of an element without its comment, timeout and counter. */
export function bareElement(value: Json): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const { elem } = asObject(value);
  return elem === undefined ? value : (asObject(elem).val ?? null);
}
