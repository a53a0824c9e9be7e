import { Store } from "../store/store.ts";
import type { ServeOptions } from "../stream/serve/serve.ts";
import { node, service } from "./build.ts";
import { serveStore, type TestServer } from "./serve-store.ts";
import { dialHttp2, WatchStream } from "./watch-stream.ts";

/** A store with one Service and the node `n1`, the server that a test wants on it, and the calls to that server. */
export class WatchedServer {
  readonly store = new Store();
  readonly #streams: WatchStream[] = [];
  #server: TestServer | undefined;

  constructor() {
    this.store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
  }

  async serve(options: Partial<ServeOptions>): Promise<void> {
    this.#server = await serveStore(this.store, options);
  }

  /** Throws before {@link serve}, as all that asks the server does. */
  get server(): TestServer {
    if (this.#server === undefined) throw new Error("nothing is served yet");
    return this.#server;
  }

  get address(): string {
    return this.server.address;
  }

  /** *Shape:* as `connect` of `node:net` takes it. */
  get place(): { readonly host: string | undefined; readonly port: number } {
    const [host, port] = this.address.split(":");
    return { host, port: Number(port) };
  }

  /** A Watch call that has just been made; it ends with the test. */
  dialWatch(session = dialHttp2(this.address)): WatchStream {
    const watch = new WatchStream(session);
    this.#streams.push(watch);
    return watch;
  }

  /** One that has its first batch and asks for the next. */
  async openWatch(): Promise<WatchStream> {
    const watch = this.dialWatch();
    await watch.received(40);
    watch.ask();
    return watch;
  }

  /** The value of a metric with these labels, whatever its others are; 0 if there is none. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    const values = (await this.server.metrics.getSingleMetric(name)?.get())?.values ?? [];
    const isMeant = (of: Readonly<Partial<Record<string, string | number>>>) =>
      Object.entries(labels).every(([key, text]) => of[key] === text);
    return values.find((value) => isMeant(value.labels))?.value ?? 0;
  }

  async stop(): Promise<void> {
    for (const { session } of this.#streams.splice(0)) session.destroy();
    await this.server.stop();
  }
}
