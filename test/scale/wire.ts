import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  AckSchema,
  EndpointSchema,
  OpItemSchema,
  OpItemsSchema,
  Set as SetName,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "@kpng/model/node-view.ts";
import { encodeExtendedEndpoint } from "@kpng/model/testing/endpoint-messages.ts";
import { endpointBytes } from "@kpng/model/wire/endpoint-bytes.ts";
import { messageIn, setFrame, valueIn } from "../../services/watcher/src/items/frames.ts";
import { packFrames } from "../../services/watcher/src/stream/delta/packed-frames.ts";
import { Acknowledgement } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import { makeEndpoint, makeService } from "./synthetic.ts";

/**
 * Time of our own protobuf encoding and decoding, beside the same done by the library. The hand-written code exists for
 * these ratios only.
 */

const samples = 60;
const sampleMs = 10;

/**
 * Time of one call in the fastest of several samples, in microseconds: other load of the machine can only add to it.
 */
function microsPerCall(call: () => unknown): number {
  run(call, 200);
  return Math.min(...Array.from({ length: samples }, () => run(call, sampleMs)));
}

function run(call: () => unknown, forMs: number): number {
  const startMs = performance.now();
  let count = 0;
  let elapsedMs = 0;
  while (elapsedMs < forMs) {
    for (let index = 0; index < 10; index += 1) call();
    count += 10;
    elapsedMs = performance.now() - startMs;
  }
  return (elapsedMs * 1_000) / count;
}

const shape = { services: 1, endpoints: 10, nodes: 10 };
const service = makeService(0);
const plain = makeEndpoint("service-0", 0, shape);
const endpoint: ViewEndpoint = {
  ...plain,
  key: plain.podName,
  isOnNode: true,
  use: { cluster: true, local: true },
  scopes: { internal: true, external: true },
};
const path = "scale/service-0/service-0-5d9f8c7b6-abcde.86f3c1d9a0b2e475";
const bytes = Buffer.from(endpointBytes(endpoint, service, true));
const frame = setFrame(SetName.EndpointsSet, path, bytes);
const frames = Array.from({ length: 1_000 }, () => frame);
const ack = toBinary(
  WatchReqSchema,
  create(WatchReqSchema, {
    Ack: create(AckSchema, {
      Applied: 1_234n,
      Timings: { WaitMicros: 1_000n, RenderMicros: 2_000n, CommitMicros: 30_000n },
      AgeMicros: 500n,
      Earlier: [{ Applied: 1_233n, AgeMicros: 90_000n }],
    }),
  }),
);

const rows: readonly (readonly [name: string, ours: () => unknown, library: () => unknown])[] = [
  [
    "encode an endpoint",
    () => endpointBytes(endpoint, service, true),
    () => toBinary(EndpointSchema, encodeExtendedEndpoint(endpoint, service)),
  ],
  [
    "frame that puts an endpoint",
    () => setFrame(SetName.EndpointsSet, path, bytes, false),
    () =>
      toBinary(
        OpItemSchema,
        create(OpItemSchema, {
          Op: { case: "Set", value: { Ref: { Set: SetName.EndpointsSet, Path: path }, Bytes: bytes } },
        }),
      ),
  ],
  ["value in a frame", () => valueIn(frame), () => fromBinary(OpItemSchema, messageIn(frame))],
  [
    "1 000 frames as packed operations",
    () => packFrames(frames),
    () =>
      toBinary(
        OpItemsSchema,
        create(OpItemsSchema, { Items: frames.map((f) => fromBinary(OpItemSchema, messageIn(f))) }),
      ),
  ],
  [
    "acknowledgement of success",
    () => Acknowledgement.fromBytes(ack),
    () => {
      const { Ack } = fromBinary(WatchReqSchema, ack);
      return Ack && Acknowledgement.fromMessage(Ack);
    },
  ],
];

process.stdout.write("| µs per call | ours | library |\n|---|--:|--:|\n");
for (const [name, ours, library] of rows) {
  process.stdout.write(`| ${name} | ${microsPerCall(ours).toFixed(2)} | ${microsPerCall(library).toFixed(2)} |\n`);
}
