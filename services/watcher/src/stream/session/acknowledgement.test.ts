import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { AckSchema, EarlierAckSchema, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { makeRandom } from "@kpng/process/testing/random.ts";
import { describe, expect, test } from "vitest";
import { Acknowledgement } from "./acknowledgement.ts";

function encode(ack: MessageInitShape<typeof AckSchema>, others: MessageInitShape<typeof WatchReqSchema> = {}) {
  return toBinary(WatchReqSchema, create(WatchReqSchema, { Ack: create(AckSchema, ack), ...others }));
}

const earlier = create(EarlierAckSchema, { Applied: 1n });

/** The acknowledgement as the library decodes it. */
function decoded(bytes: Uint8Array): Acknowledgement | undefined {
  const { Ack } = fromBinary(WatchReqSchema, bytes);
  return Ack && Acknowledgement.fromMessage(Ack);
}

describe("Acknowledgement.fromBytes", () => {
  test("returns what the library decodes", () => {
    const random = makeRandom(1);
    const number = (): bigint => BigInt(Math.floor(2 ** (random() * 53)));
    for (let round = 0; round < 2_000; round += 1) {
      const Timings = { WaitMicros: number(), RenderMicros: number(), CommitMicros: number() };
      const Earlier = Array.from({ length: Math.floor(random() * 3) }, () =>
        create(EarlierAckSchema, { Applied: number(), AgeMicros: number() }),
      );
      const AgeMicros = random() < 0.5 ? 0n : number();
      const bytes = encode({ Applied: number(), AgeMicros, Earlier, ...(random() < 0.5 ? {} : { Timings }) });
      const read = Acknowledgement.fromBytes(bytes);
      expect(read).toBeDefined();
      expect(read).toEqual(decoded(bytes));
    }
  });

  test.each([
    { name: "a failure", bytes: encode({ Applied: 1n, Failed: 2n, Error: "no" }) },
    { name: "a request", bytes: toBinary(WatchReqSchema, create(WatchReqSchema, { NodeName: "n1" })) },
    { name: "a request with an acknowledgement", bytes: encode({ Applied: 1n }, { NodeName: "n1" }) },
    { name: "a number beyond 2^53", bytes: encode({ Applied: 2n ** 60n }) },
    { name: "nothing", bytes: new Uint8Array() },
    { name: "more than 32 earlier revisions", bytes: encode({ Earlier: Array.from({ length: 33 }, () => earlier) }) },
  ])("returns undefined for $name", ({ bytes }) => {
    expect(Acknowledgement.fromBytes(bytes)).toBeUndefined();
  });

  test("returns undefined or the library's result for truncated and corrupted bytes", () => {
    const Timings = { WaitMicros: 1n, RenderMicros: 70_000n, CommitMicros: 5n };
    const bytes = encode({ Applied: 300n, Timings, AgeMicros: 400n, Earlier: [{ Applied: 299n, AgeMicros: 5_000n }] });
    for (let end = 0; end < bytes.length; end += 1) {
      expect(Acknowledgement.fromBytes(bytes.subarray(0, end))).toBeUndefined();
    }
    for (let index = 0; index < bytes.length; index += 1) {
      for (let value = 0; value < 256; value += 1) {
        const spoiled = Uint8Array.from(bytes);
        spoiled[index] = value;
        const read = Acknowledgement.fromBytes(spoiled);
        if (read !== undefined) expect(read).toEqual(decoded(spoiled));
      }
    }
  });
});
