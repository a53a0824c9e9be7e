import { EventEmitter, once } from "node:events";
import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, connect, createServer as createTcpServer, type Server } from "node:net";
import { pipeline } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Code, ConnectError, type HandlerContext } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { type OpItem, Sets, type WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";

/**
 * A scripted watcher for one backend. It follows the case, even where a real watcher would behave differently. Its
 * streams are those of localv1.Sets/Watch.
 *
 * *Bound:* what one backend sends in one case.
 */
export class ScriptedWatcher implements AsyncDisposable {
  /** All streams since the start, the newest last. */
  readonly streams: ScriptedStream[] = [];
  /** If set, a new stream ends with this error before it is in `streams`. */
  refusal: ConnectError | undefined;
  /** Number of streams that `refusal` has ended. */
  refusedCount = 0;
  readonly #opened = new EventEmitter();
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #server = createServer(
    connectNodeAdapter({ routes: (router) => router.service(Sets, { watch: (...call) => this.#watch(...call) }) }),
  );
  #slow: Server | undefined;
  #port = 0;
  #taken = 0;

  /** Starts on a free port of 127.0.0.1. With `isSlow`, each byte of its answers is a TCP segment of its own. */
  static async start({ isSlow = false }: { readonly isSlow?: boolean } = {}): Promise<ScriptedWatcher> {
    const watcher = new ScriptedWatcher();
    watcher.#server.on("session", (session) => {
      watcher.#sessions.add(session);
      session.on("error", () => undefined).once("close", () => watcher.#sessions.delete(session));
    });
    watcher.#port = await listen(watcher.#server);
    if (isSlow) {
      watcher.#slow = slowProxy(watcher.#port);
      watcher.#port = await listen(watcher.#slow);
    }
    return watcher;
  }

  /** *Shape:* `127.0.0.1:12345`. */
  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  #watch(requests: AsyncIterable<WatchReq>, { signal }: HandlerContext): AsyncIterable<OpItem> {
    if (this.refusal !== undefined) {
      this.refusedCount += 1;
      throw this.refusal;
    }
    const stream = new ScriptedStream(requests, signal);
    this.streams.push(stream);
    this.#opened.emit("stream");
    return stream.operations();
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
    for (const session of this.#sessions) session.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#slow?.close();
    await new Promise((resolve) => this.#server.close(resolve));
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

/** Returns a proxy that forwards the server's bytes one by one. */
function slowProxy(port: number): Server {
  return createTcpServer({ noDelay: true }, (client) => {
    const server = connect(port, "127.0.0.1");
    const oneByOne = async function* (chunks: AsyncIterable<Buffer>) {
      for await (const chunk of chunks) {
        for (const byte of chunk) {
          yield Buffer.of(byte);
          // Each byte is written in a turn of its own, so that it becomes a segment.
          await nextTurn();
        }
      }
    };
    // An error of either side closes both.
    pipeline(client, server, oneByOne, client, () => undefined);
  });
}

async function listen(server: Server | Http2Server): Promise<number> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  return (server.address() as AddressInfo).port;
}
