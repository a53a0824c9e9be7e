import { create, type DescField, type DescMessage, toBinary } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { describe, expect, test } from "vitest";
import { file_globalv1_api } from "../gen/globalv1/api_pb.ts";
import {
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
import { MessageWriter, tagsOf } from "./protobuf.ts";

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
