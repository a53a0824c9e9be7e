import { create, type DescEnum, type DescField, type DescMessage, type Message, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";

/** Returns a whole number from 0 up to but not including `below`. */
export type RandomBelow = (below: number) => number;

const texts = ["", "a", "web-1.ns", "é", "𝄞 clef", "x".repeat(42), "ü".repeat(43), "y".repeat(300), "z".repeat(9_000)];
const lengths = [0, 1, 127, 128, 300, 16_384];
const naturals = [0, 1, 127, 128, 16_383, 16_384, 2_097_152, 2 ** 28, 2 ** 31 - 1];
const negatives = [-1, -128, -(2 ** 31)];
const longs = [...naturals.map(BigInt), 2n ** 32n, 2n ** 35n - 1n, 2n ** 53n - 1n];

/**
 * Returns a message in which each field is set or absent by chance. Embedded messages end at the given depth.
 */
export function randomMessage<M extends DescMessage>(schema: M, below: RandomBelow, depth = 4): Message {
  const message = reflect(schema, create(schema));
  for (const field of schema.fields) {
    if (below(3) > 0) setField(message, field, below, depth);
  }
  return message.message;
}

function setField(message: ReflectMessage, field: DescField, below: RandomBelow, depth: number): void {
  if (field.message !== undefined && depth === 0) return;
  const value = (): unknown =>
    field.message === undefined
      ? randomValue(field, below)
      : reflect(field.message, randomMessage(field.message, below, depth - 1));
  switch (field.fieldKind) {
    case "list": {
      const list = message.get(field);
      for (let count = below(4); count > 0; count -= 1) list.add(value());
      return;
    }
    case "map": {
      const map = message.get(field);
      for (let count = below(4); count > 0; count -= 1) map.set(`key-${count}`, value());
      return;
    }
    default:
      message.set(field, value());
  }
}

function randomValue({ scalar, enum: enumeration }: DescField, below: RandomBelow): unknown {
  const pick = <T>(values: readonly T[]): T => values[below(values.length)] as T;
  if (enumeration !== undefined) return pick((enumeration as DescEnum).values).number;
  switch (scalar) {
    case ScalarType.STRING:
      return pick(texts);
    case ScalarType.BYTES:
      return new Uint8Array(pick(lengths)).fill(below(256));
    case ScalarType.BOOL:
      return below(2) === 1;
    case ScalarType.INT32:
      return pick([...naturals, ...negatives]);
    case ScalarType.UINT32:
      return pick([...naturals, 2 ** 32 - 1]);
    case ScalarType.FLOAT:
      return pick([0, 0.5, 1_000]);
    default:
      return pick(longs);
  }
}
