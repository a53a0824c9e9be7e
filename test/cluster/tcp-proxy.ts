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
  /** Bandwidth limit towards the client in bytes per second; undefined for no limit. */
  bytesPerSecond: number | undefined;
  acceptedCount = 0;

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
    this.acceptedCount += 1;
    if (this.#mode === "refuse") {
      client.on("error", () => undefined);
      client.resetAndDestroy();
      return;
    }
    const server = connect(Number(this.#target.port), this.#target.hostname);
    const pair = [client, server] as const;
    this.#pairs.add(pair);
    client.on("data", (bytes) => server.write(bytes));
    server.on("data", (bytes) => this.#toClient(bytes, client, server));
    for (const [socket, other] of [pair, [server, client] as const]) {
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

  /** With a limit, forwards ten chunks a second, so that a slow connection never stalls. */
  #toClient(bytes: Buffer, client: Socket, server: Socket): void {
    if (this.bytesPerSecond === undefined || client.destroyed) {
      client.write(bytes);
      if (this.#mode === "forward") server.resume();
      return;
    }
    const pieceLength = Math.ceil(this.bytesPerSecond / 10);
    client.write(bytes.subarray(0, pieceLength));
    server.pause();
    const rest = bytes.subarray(pieceLength);
    setTimeout(() => (rest.length === 0 ? server.resume() : this.#toClient(rest, client, server)), 100);
  }
}
