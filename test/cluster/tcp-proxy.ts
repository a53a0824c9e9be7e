import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { portOf } from "./ports.ts";

/** Treatment of connections by the proxy. */
export type ProxyMode =
  | "forward"
  /** Accepts connections, keeps them open and forwards nothing, as if all packets were lost. */
  | "black-hole"
  /** Closes new connections at once. */
  | "refuse";

/** TCP proxy on the loopback address between the source and the API server, which causes faults on demand. */
export class TcpProxy {
  readonly #target: URL;
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  #mode: ProxyMode = "forward";

  private constructor(target: string) {
    this.#target = new URL(target);
    this.#server = createServer((client) => this.#accept(client));
  }

  static async start(target: string): Promise<TcpProxy> {
    const proxy = new TcpProxy(target);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  /** URL that replaces the API server's. */
  get url(): string {
    return `${this.#target.protocol}//127.0.0.1:${portOf(this.#server)}`;
  }

  /** Applies to open connections, too. */
  set mode(mode: ProxyMode) {
    this.#mode = mode;
    if (mode === "refuse") this.breakAll();
    for (const sockets of this.#pairs) {
      for (const socket of sockets) mode === "black-hole" ? socket.pause() : socket.resume();
    }
  }

  /** Resets every open connection. */
  breakAll(): void {
    for (const sockets of this.#pairs) for (const socket of sockets) socket.resetAndDestroy();
  }

  async stop(): Promise<void> {
    this.breakAll();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client: Socket): void {
    if (this.#mode === "refuse") {
      client.on("error", () => undefined).resetAndDestroy();
      return;
    }
    const server = connect(Number(this.#target.port), this.#target.hostname);
    const pair = [client, server] as const;
    this.#pairs.add(pair);
    for (const [socket, other] of [pair, [server, client] as const]) {
      socket.on("data", (bytes) => other.write(bytes));
      // Errors of the other side of a broken connection do not matter.
      socket.on("error", () => undefined);
      socket.on("end", () => other.end());
      socket.on("close", () => {
        this.#pairs.delete(pair);
        other.destroy();
      });
      if (this.#mode === "black-hole") socket.pause();
    }
  }
}
