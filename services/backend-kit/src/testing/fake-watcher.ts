import { EventEmitter, once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { type OpItem, Sets, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";

/** One request that a client sent. */
export interface ReceivedRequest {
  /** Number of the stream, from 0. */
  readonly stream: number;
  /** Number of the request in its stream, from 0. */
  readonly index: number;
  readonly request: WatchReq;
  /** Trailers of the stream, to fill before it ends. */
  readonly trailers: Headers;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
}

/** Returns the operations to send, maybe later. Throws to break the stream; returns "end" to end it. */
export type Answer = (received: ReceivedRequest) => Iterable<OpItem> | "end" | Promise<Iterable<OpItem> | "end">;

/**
 * A gRPC server in the test's process that answers as the test decides. Unlike a real watcher, it can break the
 * protocol, and backends may import it.
 */
export interface FakeWatcher extends AsyncDisposable {
  /** *Shape:* `127.0.0.1:port`. */
  readonly address: string;
  /** The requests of all streams, in the order of arrival. */
  readonly received: readonly ReceivedRequest[];
  /** Resolves when at least `count` requests have arrived. */
  untilReceived(count: number): Promise<void>;
  /** Breaks all connections, as a crash would. */
  breakConnections(): void;
}

/** Starts a fake watcher on a free port of 127.0.0.1. */
export async function startFakeWatcher(answer: Answer): Promise<FakeWatcher> {
  const received: ReceivedRequest[] = [];
  const arrived = new EventEmitter();
  const sessions = new Set<ServerHttp2Session>();
  let streams = 0;
  const server = createServer(
    connectNodeAdapter({
      routes: (router) =>
        router.service(Sets, {
          async *watch(requests, { signal, responseTrailer: trailers }) {
            const stream = streams++;
            let index = 0;
            for await (const request of requests) {
              const entry = { stream, index: index++, request, trailers, signal };
              received.push(entry);
              arrived.emit("request");
              const ops = await answer(entry);
              if (ops === "end") return;
              yield* ops;
            }
          },
        }),
    }),
  );
  server.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const breakConnections = (): void => {
    for (const session of sessions) session.destroy();
  };
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    untilReceived: async (count) => {
      while (received.length < count) await once(arrived, "request");
    },
    breakConnections,
    [Symbol.asyncDispose]: async () => {
      breakConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Returns an {@link Answer} that sends these batches, one for each request of a stream, and then nothing. */
export function inTurn(...batches: readonly Awaited<ReturnType<Answer>>[]): Answer {
  return (request) => batches[request.index] ?? silence(request);
}

/** An {@link Answer} that sends nothing until the client disconnects. */
export function silence({ signal }: ReceivedRequest): Promise<"end"> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve("end");
    else signal.addEventListener("abort", () => resolve("end"), { once: true });
  });
}
