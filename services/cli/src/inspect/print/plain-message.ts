import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type JsonObject,
  type JsonValue,
  type MessageShape,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";

/** Fields whose values have the spelling of Kubernetes: "TCP", "Cluster". */
const kubernetesEnums: ReadonlyMap<string, (word: string) => string> = new Map([
  ["kpng.inspect.v1.Protocol", (word) => word],
  ["kpng.inspect.v1.TrafficPolicy", (word) => word.charAt(0) + word.slice(1).toLowerCase()],
]);

/**
 * Converts a message of the inspection API to the JSON that `-o json`, `yaml` and `jsonpath` print. Every field is
 * there, so that a jq filter does not depend on which fields are set. Counts and revisions are numbers, and enum values
 * are words: "current", "TCP". Protobuf's own JSON has texts for 64-bit numbers and names such as APPLY_STATE_CURRENT.
 */
export function plainMessage<D extends DescMessage>(schema: D, message: MessageShape<D>): JsonObject {
  return convertMessage(schema, toJson(schema, message, { alwaysEmitImplicit: true }) as JsonObject);
}

/** Returns the word of a value of an enum; "" for the unspecified value. The reference of the output lists them. */
export function enumWord({ values, typeName }: DescEnum, number: number): string {
  const word = number === 0 ? "" : (values.find((value) => value.number === number)?.localName ?? "");
  return kubernetesEnums.get(typeName)?.(word) ?? word.toLowerCase().replaceAll("_", "-");
}

function convertMessage({ fields }: DescMessage, json: JsonObject): JsonObject {
  const names = new Map(fields.map((field) => [field.jsonName, field]));
  return Object.fromEntries(
    Object.entries(json).map(([name, value]) => {
      const field = names.get(name);
      return [name, field === undefined ? value : convertField(field, value)];
    }),
  );
}

function convertField(field: DescField, value: JsonValue): JsonValue {
  if (field.fieldKind === "list" && Array.isArray(value)) return value.map((one) => convertValue(field, one));
  return field.fieldKind === "map" ? value : convertValue(field, value);
}

function convertValue({ scalar, enum: values, message }: DescField, value: JsonValue): JsonValue {
  if (values !== undefined) {
    const found = values.values.find(({ name }) => name === value);
    return found === undefined ? value : enumWord(values, found.number);
  }
  // Revisions count from 1, and no number here comes near 2^53.
  if (scalar === ScalarType.UINT64 || scalar === ScalarType.INT64) return Number(value);
  const isOurs = message !== undefined && !message.typeName.startsWith("google.protobuf.");
  return isOurs ? convertMessage(message, value as JsonObject) : value;
}
