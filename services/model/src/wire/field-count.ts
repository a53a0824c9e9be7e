import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import { tagsOf } from "./field-tags.ts";
import { MessageReader } from "./message-reader.ts";
import { WireError } from "./wire-error.ts";

/**
 * Returns true if an encoded message has more than `max` fields, with those of its embedded messages. `makeFastWatch`
 * of the watcher calls it before it decodes a request: two bytes may be a field that takes the decoder 2 µs, so 64 KiB
 * of them would block the thread for 65 ms.
 *
 * Errors: WireError for a malformed message, for groups, and for a known field with another wire type than its own. The
 * library's decoder ignores the wire type of a known field, and would then find other fields than those counted here.
 *
 * *Cost:* at most `max` fields are read, and nothing is decoded. Separate from `MessageReader`, which knows no schema.
 */
export function hasMoreFields(schema: DescMessage, bytes: Uint8Array, max: number): boolean {
  return countFields(new MessageReader(bytes), knownFieldsOf(schema), max) > max;
}

/** Returns the number of fields up to the end of a message, or a number above `max` as soon as there are more. */
function countFields(reader: MessageReader, known: KnownFields, max: number): number {
  let count = 0;
  for (let tag = reader.next(); tag !== 0 && count <= max; tag = reader.next()) {
    count += 1;
    const field = known.get(tag >>> 3);
    if (field !== undefined && !field.tags.includes(tag)) throw new WireError("a field has a wrong wire type");
    if (field?.embedded === undefined) {
      reader.skip(tag);
      continue;
    }
    const outerEnd = reader.open();
    count += countFields(reader, field.embedded, max - count);
    reader.close(outerEnd);
  }
  return count;
}

/** The fields of a message by their numbers. */
type KnownFields = ReadonlyMap<number, KnownField>;

interface KnownField {
  /** One tag; two for a list of numbers, which may be packed or not. */
  readonly tags: readonly number[];
  /** The fields of an embedded message; undefined for other values. */
  readonly embedded: KnownFields | undefined;
}

/** By schema. */
const knownFields = new WeakMap<DescMessage, Map<number, KnownField>>();

function knownFieldsOf(schema: DescMessage): KnownFields {
  const held = knownFields.get(schema);
  if (held !== undefined) return held;
  const fields = new Map<number, KnownField>();
  // Before the embedded messages, one of which may be the same schema.
  knownFields.set(schema, fields);
  const tags = tagsOf(schema);
  for (const field of schema.fields) {
    const tag = tags[field.localName] ?? 0;
    const embedded = field.message === undefined ? undefined : knownFieldsOf(field.message);
    fields.set(field.number, { tags: isNumbers(field) ? [tag, tag ^ WireType.LengthDelimited] : [tag], embedded });
  }
  return fields;
}

/** True for a list of enum values, the only lists of numbers in our requests. */
function isNumbers(field: DescField): boolean {
  return field.fieldKind === "list" && field.listKind === "enum";
}
