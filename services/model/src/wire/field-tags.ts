import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";

/**
 * The tag of each field of a message, by the field's name. A tag precedes a field on the wire: its number and wire
 * type. The code that encodes messages by hand, for speed, takes the tags from the generated schema instead of
 * repeating numbers.
 */
export type FieldTags<S extends DescMessage> = { readonly [Name in keyof S["field"]]: number };

/**
 * Returns the tags of a generated message, e.g. 18 for `tagsOf(RefSchema).Path`: field 2, length-delimited. The users
 * of `MessageWriter` and `MessageReader` call it once, when they are loaded. Separate from `MessageWriter` and
 * `MessageReader`, which share it.
 */
export function tagsOf<S extends DescMessage>(schema: S): FieldTags<S> {
  const tags = Object.entries(schema.field).map(([name, field]) => [name, (field.number << 3) | wireTypeOf(field)]);
  return Object.fromEntries(tags) as FieldTags<S>;
}

/** Scalars that are not varints, as far as our messages use them. */
const wireTypes: { readonly [Type in ScalarType]?: WireType } = {
  [ScalarType.STRING]: WireType.LengthDelimited,
  [ScalarType.BYTES]: WireType.LengthDelimited,
  [ScalarType.FIXED64]: WireType.Bit64,
  [ScalarType.FLOAT]: WireType.Bit32,
};

function wireTypeOf(field: DescField): WireType {
  const isPacked = field.fieldKind === "list" && field.packed;
  if (field.message !== undefined || field.fieldKind === "map" || isPacked) return WireType.LengthDelimited;
  return (field.scalar && wireTypes[field.scalar]) ?? WireType.Varint;
}
