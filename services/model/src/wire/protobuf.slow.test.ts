import { create, type DescField, type DescMessage, fromBinary, ScalarType, toBinary } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { describe, expect, test } from "vitest";
import { file_globalv1_api } from "../gen/globalv1/api_pb.ts";
import {
  type Ack,
  AckSchema,
  BatchOpSchema,
  EndpointSchema,
  file_localv1_api,
  KeepOpSchema,
  NodeSchema,
  OpItemSchema,
  RefSchema,
  ValueSchema,
} from "../gen/localv1/api_pb.ts";
import { randomMessage } from "../testing/random-message.ts";
import { MessageReader, MessageWriter, tagsOf, WireError } from "./protobuf.ts";

const schemas = [...file_localv1_api.messages, ...file_globalv1_api.messages];
const seeds = Array.from({ length: 300 }, (_, index) => index + 1);

function randomOf(schema: DescMessage, seed: number): ReflectMessage {
  return reflect(schema, randomMessage(schema, makeRandomBelow(makeRandom(seed))));
}

function encode({ desc, message }: ReflectMessage): Buffer {
  return Buffer.from(toBinary(desc, message));
}

function tagOf(field: DescField): number {
  return tagsOf(field.parent)[field.localName] ?? Number.NaN;
}

/** Tags of a message's fields in their order, as the library reads them. */
function tagsByLibrary(bytes: Uint8Array): number[] {
  const reader = new BinaryReader(bytes);
  const tags: number[] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    tags.push((field << 3) | type);
    reader.skip(type, field);
  }
  return tags;
}

test.each(schemas)("$typeName: the tag of each field is the one that the library writes", (schema) => {
  for (const seed of seeds) {
    const message = randomOf(schema, seed);
    for (const field of schema.fields.filter((one) => message.isSet(one))) {
      const alone = reflect(schema, create(schema));
      alone.set(field, message.get(field));
      expect(tagsByLibrary(encode(alone)), `${field}, seed ${seed}`).toContain(tagOf(field));
    }
  }
});

describe("MessageWriter", () => {
  const writer = new MessageWriter(1);

  function write(message: ReflectMessage): void {
    for (const field of message.sortedFields.filter((one) => message.isSet(one))) {
      const value: unknown = message.get(field);
      for (const one of field.fieldKind === "list" ? (value as Iterable<unknown>) : [value]) writeValue(field, one);
    }
  }

  function writeValue(field: DescField, value: unknown): void {
    const tag = tagOf(field);
    if (typeof value === "string") field.fieldKind === "list" ? writer.element(tag, value) : writer.string(tag, value);
    else if (typeof value === "boolean") writer.bool(tag, value);
    else if (typeof value === "number") writer.number(tag, value);
    else if (value instanceof Uint8Array) writer.bytes(tag, value);
    else {
      const start = writer.open(tag);
      write(value as ReflectMessage);
      writer.close(start);
    }
  }

  test.each([EndpointSchema, RefSchema, ValueSchema, KeepOpSchema, BatchOpSchema, NodeSchema])(
    "writes $typeName as the library does",
    (schema) => {
      for (const seed of seeds) {
        const message = randomOf(schema, seed);
        writer.begin();
        write(message);
        expect(encode(message).equals(writer.finish()), `seed ${seed}`).toBe(true);
      }
    },
  );

  test("writes nothing of a message that was discarded", () => {
    const tags = tagsOf(OpItemSchema);
    writer.begin();
    writer.open(tags.Set);
    writer.begin();
    writer.close(writer.open(tags.Reset));
    expect([...writer.finish()]).toEqual([tags.Reset, 0]);
  });
});

describe("MessageReader", () => {
  /** Reads a message without maps, floats and packed lists. */
  function read(reader: MessageReader, schema: DescMessage): ReflectMessage {
    const message = reflect(schema, create(schema));
    for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
      const field = schema.fields.find((one) => tagOf(one) === tag);
      if (field === undefined) throw new Error(`no field has the tag ${tag}`);
      if (field.fieldKind === "list") message.get(field).add(readValue(reader, field));
      else message.set(field, readValue(reader, field));
    }
    return message;
  }

  function readValue(reader: MessageReader, field: DescField): unknown {
    if (field.message !== undefined) {
      const outerEnd = reader.open();
      const message = read(reader, field.message);
      reader.close(outerEnd);
      return message;
    }
    const tag = tagOf(field);
    if ((tag & 7) === 0) {
      const value = reader.number();
      return field.scalar === ScalarType.UINT64
        ? BigInt(value)
        : field.scalar === ScalarType.BOOL
          ? value === 1
          : value;
    }
    const bytes = reader.bytes();
    return field.scalar === ScalarType.STRING ? Buffer.from(bytes).toString() : bytes;
  }

  test.each([AckSchema, RefSchema, ValueSchema, KeepOpSchema, BatchOpSchema, NodeSchema])(
    "reads $typeName as the library does",
    (schema) => {
      for (const seed of seeds) {
        const bytes = encode(randomOf(schema, seed));
        // The message begins behind other bytes, as in a frame.
        const reader = new MessageReader(Buffer.concat([Buffer.alloc(5), bytes]), 5);
        expect(encode(read(reader, schema)).equals(bytes), `seed ${seed}`).toBe(true);
      }
    },
  );

  test("skips what was not read of an embedded message", () => {
    const reader = new MessageReader(Uint8Array.from([0x0a, 2, 0x08, 7, 0x10, 9]));
    expect(reader.next()).toBe(0x0a);
    reader.close(reader.open());
    expect([reader.next(), reader.number(), reader.next()]).toEqual([0x10, 9, 0]);
  });

  test("fails with a WireError where the library fails for a truncated message", () => {
    const bytes = encode(randomOf(AckSchema, 3));
    let failures = 0;
    for (let end = 0; end < bytes.length; end += 1) {
      const part = bytes.subarray(0, end);
      let wanted: Ack;
      try {
        wanted = fromBinary(AckSchema, part);
      } catch {
        failures += 1;
        expect(() => read(new MessageReader(part), AckSchema), `${end} bytes`).toThrow(WireError);
        continue;
      }
      expect(encode(read(new MessageReader(part), AckSchema))).toEqual(encode(reflect(AckSchema, wanted)));
    }
    expect(failures).toBeGreaterThan(0);
  });

  test.each([
    { name: "an unfinished number", bytes: [0x80] },
    { name: "a number of 2^53", bytes: [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10] },
    { name: "a negative number", bytes: [...new Array(9).fill(0xff), 1] },
    { name: "a length beyond the end", bytes: [2, 1] },
    { name: "a length beyond 2^53", bytes: [...new Array(8).fill(0xff), 1] },
  ])("fails with a WireError for $name", ({ bytes }) => {
    expect(() => new MessageReader(Uint8Array.from(bytes)).bytes()).toThrow(WireError);
    if (bytes.length !== 2) expect(() => new MessageReader(Uint8Array.from(bytes)).number()).toThrow(WireError);
  });

  test("fails with a WireError for field number 0", () => {
    expect(() => new MessageReader(Uint8Array.from([0x00])).next()).toThrow(WireError);
  });

  test("fails with a WireError for an embedded message that ends after the one around it", () => {
    const reader = new MessageReader(Uint8Array.from([0x0a, 2, 0x0a, 1, 7]));
    reader.next();
    reader.open();
    reader.next();
    expect(() => reader.bytes()).toThrow(WireError);
  });
});
