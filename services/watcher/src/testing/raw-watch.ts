import { once } from "node:events";
import type { OutgoingHttpHeaders } from "node:http";
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { text } from "node:stream/consumers";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Sets, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";

/** A Watch call over plain HTTP/2, which records the order of frames. */
export class RawWatch {
  readonly session: ClientHttp2Session;
  readonly stream: ClientHttp2Stream;
  /** Events in order: "goaway", "trailers", "close of stream", "close of session". */
  readonly events: string[] = [];
  readonly ended: Promise<void>;
  trailers: Readonly<Record<string, unknown>> = {};
  byteCount = 0;

  constructor(
    session: ClientHttp2Session,
    request: MessageInitShape<typeof WatchReqSchema> = { NodeName: "n1" },
    headers: OutgoingHttpHeaders = {},
  ) {
    this.session = session;
    const note = (event: string) => () => this.events.push(event);
    session.on("goaway", note("goaway")).on("close", note("close of session"));
    session.on("error", () => undefined);
    this.stream = session.request({
      ":method": "POST",
      ":path": `/${Sets.typeName}/Watch`,
      "content-type": "application/grpc",
      te: "trailers",
      ...headers,
    });
    this.stream.on("error", () => undefined);
    this.stream.on("data", (chunk: Buffer) => (this.byteCount += chunk.length));
    const keep = (headers: Record<string, unknown>): void => {
      this.trailers = headers;
      this.events.push("trailers");
    };
    this.stream.on("trailers", keep);
    this.ended = new Promise((resolve) => {
      this.stream.once("close", () => {
        this.events.push("close of stream");
        resolve();
      });
    });
    this.stream.write(encodeRequest(request));
  }

  /** Requests the next batch. */
  ask(request: MessageInitShape<typeof WatchReqSchema> = { NodeName: "n1" }): void {
    this.stream.write(encodeRequest(request));
  }

  get status(): string {
    return String(this.trailers["grpc-status"]);
  }

  get pushback(): string {
    return String(this.trailers["grpc-retry-pushback-ms"]);
  }

  /** Resolves when at least `byteCount` bytes have arrived in total, or the stream has closed. */
  async received(byteCount = 1): Promise<void> {
    while (this.byteCount < byteCount && !this.stream.closed) await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Encodes a request as a gRPC message with its length prefix. */
export function encodeRequest(request: MessageInitShape<typeof WatchReqSchema>): Buffer {
  const message = toBinary(WatchReqSchema, create(WatchReqSchema, request));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** Opens an HTTP/2 connection to `host:port`. */
export function dialHttp2(address: string): ClientHttp2Session {
  const session = connect(`http://${address}`);
  session.on("error", () => undefined);
  return session;
}

/** Calls a method over plain HTTP/2 as curl does, and returns the status and the text of the answer. */
export async function postJson(address: string, path: string, body = "{}", headers: OutgoingHttpHeaders = {}) {
  const session = dialHttp2(address);
  const method = { ":method": "POST", ":path": path, "content-type": "application/json" };
  const stream = session.request({ ...method, ...headers }).on("error", () => undefined);
  stream.end(body);
  const [answer] = await once(stream, "response");
  return { status: Number(answer[":status"]), answer: await text(stream).finally(() => session.destroy()) };
}
