import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { connect, createServer, type ListenOptions, type NetConnectOpts, type Server, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import type { Laboratory } from "./laboratory.ts";
import { programPath } from "./program-path.ts";

/** Address to listen on or to connect to: a port of the loopback address, `ADDRESS:PORT`, or the path of a unix socket. */
export type Place = number | string;

function optionsOf(place: Place): NetConnectOpts & ListenOptions {
  const [, host = "127.0.0.1", port] = /^(?:([\d.]+):)?(\d+)$/.exec(String(place)) ?? [];
  return port === undefined ? { path: String(place) } : { host, port: Number(port) };
}

/** The program that {@link relayIn} runs: `node relay-main.ts FROM TO [FROM TO]…` prints a line when it listens. */
export const relayFile = (): string => programPath("relay-main.ts");

/** A relay, which can fail on demand. Closing it ends its connections, too. */
export interface Relay extends Server {
  /** Resets all connections. */
  breakAll(): void;
  /** Keeps all connections open and forwards nothing, as if packets were lost; or forwards again. */
  mute(isMute: boolean): void;
}

/** Accepts connections at `from` and forwards them to `to`, or to what it returns, in both directions. */
export function relay(from: Place, to: Place | (() => Place)): Relay {
  const sockets = new Set<Socket>();
  let isMuted = false;
  const server = createServer((near) => {
    const far = connect(optionsOf(typeof to === "function" ? to() : to));
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      // An error on either side closes both.
      one.on("error", () => other.destroy()).on("data", (bytes) => forward(one, other, bytes));
      one.on("end", () => other.end());
      one.on("close", () => {
        sockets.delete(one);
        other.destroy();
      });
      if (isMuted) one.pause();
    }
  });
  /** Without `pipe`, which would resume a muted socket. */
  const forward = (one: Socket, other: Socket, bytes: Buffer): void => {
    if (other.write(bytes)) return;
    one.pause();
    other.once("drain", () => void (isMuted || one.resume()));
  };
  const close = server.close.bind(server);
  const breakAll = (): void => {
    // A unix socket cannot be reset.
    for (const socket of sockets) socket.remoteAddress === undefined ? socket.destroy() : socket.resetAndDestroy();
  };
  const mute = (isMute: boolean): void => {
    isMuted = isMute;
    for (const socket of sockets) isMute ? socket.pause() : socket.resume();
  };
  server.close = (done) => {
    for (const socket of sockets) socket.destroy();
    return close(done);
  };
  server.listen(optionsOf(from));
  return Object.assign(server, { breakAll, mute });
}

/** Relays in a namespace of a laboratory, from each first place to the second; ends with the laboratory. */
export async function relayIn(
  laboratory: Laboratory,
  namespace: string,
  ...pairs: readonly (readonly [from: Place, to: Place])[]
): Promise<void> {
  await laboratory.startServer(namespace, [process.execPath, relayFile(), ...pairs.flat().map(String)]);
}

/** Sends a GET request through a unix socket, and returns the body. Errors: no response within 5 s. */
export async function getThrough(socketPath: string, path: string): Promise<string> {
  const call = request({ socketPath, path, agent: false, signal: AbortSignal.timeout(5_000) }).end();
  const [response] = (await once(call, "response")) as [IncomingMessage];
  return text(response);
}
