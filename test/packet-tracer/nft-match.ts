import { asList, asNumber, asObject, asText, bareElement, type Json, kindOf, NotUnderstood } from "./nft-json.ts";
import type { Match } from "./rule.ts";

/** A named set or map of a table. */
export interface NamedSet {
  /** A map's elements are pairs of key and value. */
  readonly elements: readonly Json[];
  /** Timeout of the elements in seconds, for a set to which packets add elements. Its content is not known. */
  readonly timeoutSeconds: number | undefined;
}

export type NamedSets = ReadonlyMap<string, NamedSet>;

/** Condition of one statement: each alternative is a list of matches that must all hold. */
interface Condition {
  readonly alternatives: readonly (readonly Match[])[];
  /** If set, the condition is that client affinity remembers the client, for this many seconds. */
  readonly affinitySeconds?: number | undefined;
}

/**
 * Translates a `match` statement of nft into conditions of the tracer. `parseNftRule` calls it. Separate from
 * `parseNftRule`, which translates the end of a rule: what happens to a packet that matches. Errors: NotUnderstood.
 */
export function parseMatch(statement: Json, sets: NamedSets): Condition {
  const { op, left, right } = asObject(statement);
  if (right === undefined) throw new NotUnderstood(statement);
  if (op !== "==" && op !== "!=" && op !== "in") throw new NotUnderstood(statement);
  const isNot = op === "!=";
  const set = typeof right === "string" && right.startsWith("@") ? namedSet(right, sets) : undefined;
  if (set?.timeoutSeconds !== undefined) {
    if (isNot) throw new NotUnderstood(statement);
    return { alternatives: [[{ kind: "maybe" }]], affinitySeconds: set.timeoutSeconds };
  }
  const values = set?.elements ?? anonymousSet(right) ?? [right];
  const each = values.map((value) => parseKey(left, bareElement(value), isNot));
  // "Not in the set" means that the key equals none of the elements.
  return { alternatives: isNot ? [each.flat()] : each };
}

/** Returns a named set. Errors: NotUnderstood if the table does not have it. */
export function namedSet(reference: Json | undefined, sets: NamedSets): NamedSet {
  const set = sets.get(asText(reference).slice(1));
  if (set === undefined) throw new NotUnderstood(reference);
  return set;
}

function anonymousSet(value: Json): readonly Json[] | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const { set } = asObject(value);
  return set === undefined ? undefined : asList(set);
}

/** Translates the comparison of one key, or of several that are concatenated, with a value. Errors: NotUnderstood. */
export function parseKey(key: Json | undefined, value: Json, isNot = false): readonly Match[] {
  const [kind, content] = kindOf(key);
  if (kind !== "concat") return [parseField(kind, content, value, isNot)];
  const values = asList(kindOf(value)[1]);
  const fields = asList(content);
  // A list of matches cannot express that at least one of several keys differs.
  if (isNot || values.length !== fields.length) throw new NotUnderstood(key);
  return fields.flatMap((field, at) => parseKey(field, values[at] ?? null));
}

function parseField(kind: string, content: Json, value: Json, isNot: boolean): Match {
  const unknown = (): NotUnderstood => new NotUnderstood({ [kind]: content, value });
  switch (kind) {
    case "payload": {
      const { field, protocol } = asObject(content);
      if (field === "daddr") return { kind: "address", of: "destination", cidr: cidrOf(value), isNot };
      if (field === "saddr") return { kind: "address", of: "source", cidr: cidrOf(value), isNot };
      if (field === "dport") return { kind: "port", from: asNumber(value), to: asNumber(value), isNot };
      if (field === "protocol" || field === "nexthdr") return { kind: "protocol", protocol: asText(value), isNot };
      throw new NotUnderstood(protocol);
    }
    case "meta": {
      const name = asObject(content).key;
      if (name === "l4proto") return { kind: "protocol", protocol: asText(value), isNot };
      if (name !== "iifname" && name !== "oifname") throw unknown();
      const pattern = asText(value).replace(/\*$/, "+");
      return { kind: "interface", of: name === "iifname" ? "in" : "out", pattern, isNot };
    }
    case "ct": {
      const { key } = asObject(content);
      if (key !== "state" && key !== "status") throw unknown();
      return { kind: "state", states: [asText(value).toUpperCase()], isNot };
    }
    case "fib": {
      const { result, flags } = asObject(content);
      const [of] = asList(flags);
      if (result !== "type" || value !== "local" || (of !== "saddr" && of !== "daddr")) throw unknown();
      return { kind: "localAddress", of: of === "saddr" ? "source" : "destination", isNot };
    }
    case "&": {
      const [left, mask] = asList(content);
      if (JSON.stringify(left) !== '{"meta":{"key":"mark"}}') throw unknown();
      return { kind: "mark", value: asNumber(value), mask: asNumber(mask), isNot };
    }
    default:
      throw unknown();
  }
}

function cidrOf(value: Json): string {
  if (typeof value === "string") return value;
  const { prefix } = asObject(value);
  const { addr, len } = asObject(prefix);
  return `${asText(addr)}/${asNumber(len)}`;
}
