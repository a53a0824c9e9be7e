import { create, type DescMethod, type DescService, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { Sets as GlobalSets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Sets as LocalSets, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";

// A client that shares only the generated messages with our servers, and sees what a Go client sees on the wire.
function definitionOf(service: DescService): grpc.ServiceDefinition {
  const method = (desc: DescMethod): grpc.MethodDefinition<Message, Message> => ({
    path: `/${service.typeName}/${desc.name}`,
    requestStream: desc.methodKind === "bidi_streaming" || desc.methodKind === "client_streaming",
    responseStream: desc.methodKind === "bidi_streaming" || desc.methodKind === "server_streaming",
    requestSerialize: (message) => Buffer.from(toBinary(desc.input, create(desc.input, message))),
    requestDeserialize: (bytes) => fromBinary(desc.input, bytes),
    responseSerialize: (message) => Buffer.from(toBinary(desc.output, message)),
    responseDeserialize: (bytes) => fromBinary(desc.output, bytes),
  });
  return Object.fromEntries(service.methods.map((desc) => [desc.localName, method(desc)])) as grpc.ServiceDefinition;
}

/** One Watch stream, read batch by batch. */
export class GrpcJsWatch {
  readonly call: grpc.ClientDuplexStream<unknown, OpItem>;
  readonly #client: grpc.Client;
  readonly #iterator: AsyncIterator<OpItem>;

  constructor(address: string, set: "local" | "global", credentials = grpc.credentials.createInsecure()) {
    const Client = grpc.makeClientConstructor(definitionOf(set === "local" ? LocalSets : GlobalSets), "Sets");
    this.#client = new Client(address, credentials);
    this.call = (this.#client as unknown as { watch(): grpc.ClientDuplexStream<unknown, OpItem> }).watch();
    this.call.on("error", () => undefined);
    this.#iterator = this.call[Symbol.asyncIterator]();
  }

  /** Sends a request and returns all operations up to and including Sync. */
  async ask(request: object = {}): Promise<OpItem[]> {
    this.send(request);
    return this.batch();
  }

  send(request: object): void {
    this.call.write(request);
  }

  /** Says that a revision was applied, with times of phases. */
  acknowledge(revision: number): void {
    const Timings = { WaitMicros: 1_000n, RenderMicros: 2_000n, CommitMicros: 3_000n };
    this.send({ Ack: { Applied: BigInt(revision), Timings } });
  }

  async batch(): Promise<OpItem[]> {
    const ops: OpItem[] = [];
    for (;;) {
      const op = await this.next();
      if (op === undefined) throw new Error(`the stream ended after ${ops.length} operations`);
      ops.push(op);
      if (op.Op.case === "Sync") return ops;
    }
  }

  /** Returns the next operation, or undefined at the end of the stream. */
  async next(): Promise<OpItem | undefined> {
    const result = await this.#iterator.next();
    return result.done ? undefined : result.value;
  }

  close(): void {
    this.call.cancel();
    this.#client.close();
  }
}
