import type { Family } from "@kpng/model/address.ts";
import { addressBytes, type ElementBytes, type ElementValue, numberBytes, portBytes } from "./element-keys.ts";
import { type Field, keyFields, protocolNames, valueFields } from "./format-element.ts";
import { dataOf, type SharedSet } from "./set-names.ts";

/** An element as `nft --json` prints it: a key, `[key, value]` in a map, each possibly with a comment. */
export type JsonElement = unknown;

/** An element in the bytes that the kernel has. */
export interface ParsedElement {
  readonly key: ElementBytes;
  /** "" in a set without data. */
  readonly value: ElementValue;
  readonly comment: string;
}

const protocolNumbers = new Map(Object.entries(protocolNames).map(([number, name]) => [name, Number(number)]));

/** Names that nft has for two numbers of the type of `meta priority`. */
const namedNumbers = new Map([
  ["none", 0],
  ["root", 0xffff_ffff],
]);

/**
 * Parses an element of a shared set from the output of `nft --json`. `NftToolConnection` reads tables with it. Separate
 * from `format-element.ts`, which writes the same values for people and for nft.
 *
 * Errors: RangeError if it is not an element of this set.
 */
export function parseElement(family: Family, set: SharedSet, json: JsonElement): ParsedElement {
  const isMap = Array.isArray(json);
  const [left, right] = isMap ? json : [json, undefined];
  const { val = left, comment } = memberOf(left, "elem") ?? {};
  const key = parseFields(family, set, keyFields[set], val);
  return {
    key,
    value: isMap ? parseData(family, set, right) : "",
    comment: typeof comment === "string" ? comment : "",
  };
}

function parseData(family: Family, set: SharedSet, json: unknown): ElementValue {
  const kind = dataOf[set];
  if (kind === "value") return parseFields(family, set, valueFields[set] ?? ["number"], json);
  const target = memberOf(json, kind)?.target;
  if (typeof target === "string") return target;
  throw new RangeError(`${JSON.stringify(json)} is not a value of set ${set}`);
}

function parseFields(family: Family, set: SharedSet, fields: readonly Field[], json: unknown): ElementBytes {
  // Several fields are `{"concat": [one, …]}`; a single field is the value itself.
  const concatenated = memberOf(json, "concat");
  const parts: readonly unknown[] = Array.isArray(concatenated) ? concatenated : [json];
  const bytes = fields.map((field, at) => parseField(family, field, parts[at]));
  if (parts.length === fields.length && bytes.every((one) => one !== undefined)) return bytes.join("");
  throw new RangeError(`${JSON.stringify(json)} is not a key or value of set ${set}`);
}

function parseField(family: Family, field: Field, json: unknown): ElementBytes | undefined {
  const text = String(json);
  switch (field) {
    case "address":
      return text.includes(":") === (family === "v6") ? addressBytes(text) : undefined;
    case "protocol": {
      const number = protocolNumbers.get(text) ?? Number(text);
      return Number.isInteger(number) ? String.fromCharCode(number, 0, 0, 0) : undefined;
    }
    case "port":
      return Number.isInteger(Number(text)) ? portBytes(Number(text)) : undefined;
    case "index":
      return Number.isInteger(Number(text)) ? numberBytes(Number(text)) : undefined;
    case "number": {
      const [, high, low] = /^([0-9a-f]*):([0-9a-f]*)$/.exec(text) ?? [];
      const named = namedNumbers.get(text);
      if (named !== undefined) return numberBytes(named);
      if (high === undefined || low === undefined) return undefined;
      return numberBytes(Number.parseInt(high || "0", 16) * 65_536 + Number.parseInt(low || "0", 16));
    }
  }
}

/** Returns an object's member that is an object; undefined if there is none. */
function memberOf(json: unknown, name: string): Readonly<Record<string, unknown>> | undefined {
  if (typeof json !== "object" || json === null) return undefined;
  const member = (json as Readonly<Record<string, unknown>>)[name];
  return typeof member === "object" && member !== null ? (member as Readonly<Record<string, unknown>>) : undefined;
}
