import { createClient, type Transport } from "@connectrpc/connect";
import { Sets } from "@kpng/model/gen/localv1/api_pb.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { Store } from "../store/store.ts";
import type { ServeOptions } from "../stream/serve/call-handler.ts";
import { dialHttp2, RawWatch } from "./raw-watch.ts";
import { serveStore, type TestServer } from "./serve-store.ts";

/**
 * A store with one Service and the node `n1`, a server on it, and Watch calls to the server, which end with the test.
 */
export class WatchedServer {
  readonly store = new Store();
  readonly #streams: RawWatch[] = [];
  #server: TestServer | undefined;

  constructor() {
    this.store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
  }

  async serve(options: Partial<ServeOptions> = {}): Promise<void> {
    this.#server = await serveStore(this.store, options);
  }

  /** The running server. Throws before {@link serve}. */
  get server(): TestServer {
    if (this.#server === undefined) throw new Error("serve() was not called");
    return this.#server;
  }

  get address(): string {
    return this.server.address;
  }

  /** Address for `connect` of `node:net`. */
  get socketAddress(): { readonly host: string | undefined; readonly port: number } {
    const [host, port] = this.address.split(":");
    return { host, port: Number(port) };
  }

  dialWatch(session = dialHttp2(this.address)): RawWatch {
    const watch = new RawWatch(session);
    this.#streams.push(watch);
    return watch;
  }

  /** Starts a Watch call that has received its first batch and requested the next. */
  async openWatch(): Promise<RawWatch> {
    const watch = this.dialWatch();
    await watch.received(40);
    watch.ask();
    return watch;
  }

  /** Returns the value of a metric whose labels include these; 0 if there is none. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    const values = (await this.server.metrics.getSingleMetric(name)?.get())?.values ?? [];
    const hasLabels = (of: Readonly<Partial<Record<string, string | number>>>) =>
      Object.entries(labels).every(([key, text]) => of[key] === text);
    return values.find((value) => hasLabels(value.labels))?.value ?? 0;
  }

  /** Number of connections, or of calls, that were refused or ended for this reason. */
  refused(reason: string): Promise<number> {
    return this.metric("kpng_refused_total", { reason });
  }

  async stop(): Promise<void> {
    for (const { session } of this.#streams.splice(0)) session.destroy();
    await this.#server?.stop();
  }
}

/**
 * Opens a Watch stream for these nodes, and waits for its first message. `ended` rejects with the reason when it ends.
 */
export async function openStream(
  transport: Transport,
  ...nodeNames: string[]
): Promise<{ readonly ended: Promise<void> }> {
  const requests = sendAll(nodeNames.map((NodeName) => ({ NodeName })));
  const answers = createClient(Sets, transport).watch(requests)[Symbol.asyncIterator]();
  await answers.next();
  const ended = (async () => {
    while (!(await answers.next()).done);
  })();
  ended.catch(() => undefined);
  return { ended };
}

/** Sends requests, and leaves the stream open. */
export async function* sendAll<R>(requests: readonly R[]): AsyncIterable<R> {
  yield* requests;
  await new Promise(() => undefined);
}
