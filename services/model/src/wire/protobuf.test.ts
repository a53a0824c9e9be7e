import { create, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { Feature, WatchReqSchema } from "../gen/localv1/api_pb.ts";
import { hasMoreFields, WireError } from "./protobuf.ts";

const request = toBinary(
  WatchReqSchema,
  create(WatchReqSchema, {
    NodeName: "n1",
    Features: [Feature.Extended, Feature.Batches],
    HeldDigests: Uint8Array.from([0x0a, 0x0b]),
    Ack: { Earlier: [{ Applied: 1n, AgeMicros: 2n ** 64n - 1n }, { Applied: 2n }] },
  }),
);
/** NodeName, Features, HeldDigests, Ack; two earlier revisions with two fields and one. */
const requestFields = 4 + 2 + 3;

/** Number of fields of a decoded message that have values, with those of its embedded messages. */
function fieldsIn(message: object): number {
  let count = 0;
  for (const [name, value] of Object.entries(message)) {
    if (name === "$typeName") continue;
    if (name === "Features") count += Math.min(1, value.length);
    else if (Array.isArray(value)) for (const one of value) count += 1 + (name === "$unknown" ? 0 : fieldsIn(one));
    else if (typeof value === "object" && !(value instanceof Uint8Array)) count += 1 + fieldsIn(value as Message);
    else if (value instanceof Uint8Array ? value.length > 0 : Boolean(value)) count += 1;
  }
  return count;
}

describe("hasMoreFields", () => {
  test("counts the fields of a message and of its embedded messages", () => {
    expect(fieldsIn(fromBinary(WatchReqSchema, request))).toBe(requestFields);
    expect(hasMoreFields(WatchReqSchema, request, requestFields)).toBe(false);
    expect(hasMoreFields(WatchReqSchema, request, requestFields - 1)).toBe(true);
    expect(hasMoreFields(WatchReqSchema, new Uint8Array(), 0)).toBe(false);
  });

  test.each([
    { name: "unknown varints", bytes: [0x78, 0x80, 0x01, 0x78, 0x00, 0x78, 0x00], count: 3 },
    { name: "unknown fixed numbers", bytes: [0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x7d, 1, 2, 3, 4], count: 2 },
    { name: "unknown bytes, whatever is in them", bytes: [0x7a, 4, 0x78, 0, 0x78, 0], count: 1 },
    { name: "an embedded message that is repeated", bytes: [0xba, 0x06, 0, 0xba, 0x06, 0], count: 2 },
    { name: "features that are not packed", bytes: [0xa0, 0x06, 1, 0xa0, 0x06, 2], count: 2 },
  ])("counts $name", ({ bytes, count }) => {
    const message = Uint8Array.from(bytes);
    expect(hasMoreFields(WatchReqSchema, message, count)).toBe(false);
    expect(hasMoreFields(WatchReqSchema, message, count - 1)).toBe(true);
  });

  test.each([
    { name: "a group", bytes: [0x7b, 0x7c] },
    { name: "a fixed number that is truncated", bytes: [0x7d, 1, 2, 3] },
    { name: "bytes that are truncated", bytes: [0x7a, 2, 0] },
    // The library reads the 2 as the value of Count, and then more fields.
    { name: "a known number encoded as bytes", bytes: [0xca, 0x06, 2, 0x78, 0] },
    { name: "an embedded message encoded as a number", bytes: [0xb8, 0x06, 0] },
  ])("throws WireError for $name", ({ bytes }) => {
    expect(() => hasMoreFields(WatchReqSchema, Uint8Array.from(bytes), 100)).toThrow(WireError);
  });

  test("never counts fewer fields than the library decodes from corrupted bytes", () => {
    let compared = 0;
    for (let index = 0; index < request.length; index += 1) {
      for (let value = 0; value < 256; value += 1) {
        const spoiled = Uint8Array.from(request);
        spoiled[index] = value;
        try {
          if (hasMoreFields(WatchReqSchema, spoiled, request.length)) throw new Error("more fields than bytes");
        } catch (error) {
          if (error instanceof WireError) continue;
          throw error;
        }
        const decoded = decode(spoiled);
        if (decoded === undefined) continue;
        compared += 1;
        expect(hasMoreFields(WatchReqSchema, spoiled, fieldsIn(decoded) - 1), `byte ${index}: ${value}`).toBe(true);
      }
    }
    expect(compared).toBeGreaterThan(1_000);
  });
});

function decode(bytes: Uint8Array): Message | undefined {
  try {
    return fromBinary(WatchReqSchema, bytes);
  } catch {
    return undefined;
  }
}
