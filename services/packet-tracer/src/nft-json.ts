/** A value of nft's JSON output (libnftables-json(5)), before anything is known about it. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** A rule contains something that the tracer does not know. */
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

/** Errors: {@link NotUnderstood}, as for the other functions of this file. */
export function asObject(value: Json | undefined): Readonly<Record<string, Json>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new NotUnderstood(value);
  return value as Readonly<Record<string, Json>>;
}

export function asList(value: Json | undefined): readonly Json[] {
  if (!Array.isArray(value)) throw new NotUnderstood(value);
  return value;
}

export function asText(value: Json | undefined): string {
  if (typeof value !== "string") throw new NotUnderstood(value);
  return value;
}

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
