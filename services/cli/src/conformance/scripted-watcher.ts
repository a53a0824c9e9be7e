import { EventEmitter, once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { type OpItem, Sets, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";

/**
 * A scripted watcher for one backend. It follows the case, even where a real watcher would behave differently. Its
 * streams are those of localv1.Sets/Watch.
 *
 * *Bound:* what one backend sends in one case.
 */
export class ScriptedWatcher implements AsyncDisposable {
  /** *Shape:* `127.0.0.1:12345`. */
  readonly address: string;
  /** All streams since the start, the newest last. */
  readonly streams: ScriptedStream[] = [];
  /** If set, a new stream ends with this error before it is in `streams`. */
  refusal: ConnectError | undefined;
  /** Number of streams that `refusal` has ended. */
  refusedCount = 0;
  readonly #opened: EventEmitter;
  readonly #close: () => Promise<void>;
  readonly #cut: () => void;
  #taken = 0;

  private constructor(address: string, opened: EventEmitter, cut: () => void, close: () => Promise<void>) {
    this.address = address;
    this.#opened = opened;
    this.#cut = cut;
    this.#close = close;
  }

  /** Starts on a free port of 127.0.0.1. With `isSlow`, each byte of its answers is a TCP segment of its own. */
  static async start({ isSlow = false }: { readonly isSlow?: boolean } = {}): Promise<ScriptedWatcher> {
    const opened = new EventEmitter();
    const sessions = new Set<ServerHttp2Session>();
    const server = createServer(
      connectNodeAdapter({
        routes: (router) =>
          router.service(Sets, {
            watch: (requests, { signal }) => {
              const { refusal } = watcher;
              if (refusal !== undefined) {
                watcher.refusedCount += 1;
                throw refusal;
              }
              const stream = new ScriptedStream(requests, signal);
              watcher.streams.push(stream);
              opened.emit("stream");
              return stream.operations();
            },
          }),
      }),
    );
    server.on("session", (session) => {
      sessions.add(session);
      session.on("error", () => undefined).once("close", () => sessions.delete(session));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const slow = isSlow ? await startSlowProxy(port) : undefined;
    const cut = (): void => {
      for (const session of sessions) session.destroy();
    };
    const close = async (): Promise<void> => {
      cut();
      slow?.close();
      await new Promise((resolve) => server.close(resolve));
    };
    const watcher = new ScriptedWatcher(`127.0.0.1:${slow?.port ?? port}`, opened, cut, close);
    return watcher;
  }

  /** Resolves with the next stream that no earlier call has returned. Rejects after `limitMs`. */
  async nextStream(limitMs: number): Promise<ScriptedStream> {
    const limit = AbortSignal.timeout(limitMs);
    while (this.streams.length <= this.#taken) {
      await once(this.#opened, "stream", { signal: limit }).catch(() => {
        throw new Error(`the backend opened no stream within ${limitMs} ms`);
      });
    }
    return this.streams[this.#taken++] as ScriptedStream;
  }

  /** Breaks all connections, as a crash does. */
  cut(): void {
    this.#cut();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
  }
}

/** One stream of a backend. */
export class ScriptedStream {
  /** Requests for batches so far. */
  readonly requests: WatchReq[] = [];
  /** Acknowledgements so far, with their times in milliseconds, and the revision that had been sent by then. */
  readonly acks: { readonly atMs: number; readonly applied: bigint; readonly sent: bigint }[] = [];
  /** True once the backend or the connection has ended the stream. */
  isClosed = false;
  readonly #changed = new EventEmitter().setMaxListeners(0);
  #queue: OpItem[] = [];
  #end: ConnectError | undefined;
  #sent = 0n;

  constructor(requests: AsyncIterable<WatchReq>, signal: AbortSignal) {
    void this.#read(requests);
    signal.addEventListener("abort", () => this.#closed(), { once: true });
  }

  async #read(requests: AsyncIterable<WatchReq>): Promise<void> {
    try {
      for await (const request of requests) {
        const { Ack: ack } = request;
        if (ack === undefined) this.requests.push(request);
        else this.acks.push({ atMs: performance.now(), applied: ack.Applied, sent: this.#sent });
        this.#changed.emit("change");
      }
    } catch {
      // The stream is broken.
    }
    this.#closed();
  }

  #closed(): void {
    this.isClosed = true;
    this.#changed.emit("change");
  }

  /** Sends operations. */
  send(operations: readonly OpItem[]): void {
    this.#queue.push(...operations);
    for (const { Op: op } of operations) if (op.case === "Sync") this.#sent = op.value.Revision;
    this.#changed.emit("change");
  }

  /** Ends the stream after what has been sent, by default as a server does that is stopping. */
  end(error = new ConnectError("the watcher is stopping", Code.Unavailable)): void {
    this.#end = error;
    this.#changed.emit("change");
  }

  /** Resolves when `condition` holds; rejects after `limitMs`. `what` says in the error what was expected. */
  async until(condition: () => boolean, limitMs: number, what: string): Promise<void> {
    const limit = AbortSignal.timeout(limitMs);
    while (!condition()) {
      await once(this.#changed, "change", { signal: limit }).catch(() => {
        throw new Error(`the backend ${what}, within ${limitMs} ms`);
      });
    }
  }

  async *operations(): AsyncGenerator<OpItem, void, void> {
    while (!this.isClosed) {
      if (this.#queue.length > 0) {
        const queue = this.#queue;
        this.#queue = [];
        yield* queue;
        continue;
      }
      if (this.#end !== undefined) throw this.#end;
      // In the same turn as the look at the queue, so that no change is missed.
      await once(this.#changed, "change");
    }
  }
}

/** Starts a proxy that forwards the server's bytes one by one. */
async function startSlowProxy(target: number): Promise<{ readonly port: number; close(): void }> {
  const sockets = new Set<Socket>();
  const server = createTcpServer((client) => {
    const upstream = connect(target, "127.0.0.1");
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => socket.destroy()).on("close", () => sockets.delete(socket));
    }
    client.pipe(upstream);
    upstream.on("data", async (data) => {
      upstream.pause();
      for (const byte of data) {
        if (client.destroyed) break;
        client.write(Buffer.of(byte));
        // Each byte is written in a turn of its own, so that it becomes a segment.
        await new Promise(setImmediate);
      }
      upstream.resume();
    });
    upstream.on("close", () => client.destroy());
    client.on("close", () => upstream.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
