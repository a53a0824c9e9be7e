import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Duplex, pipeline } from "node:stream";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import type { Replica } from "../inspect/client.ts";

/**
 * Makes a replica that is reached through streams: `open` supplies one for each connection of the replica's transport.
 * `dial` returns the transport for the path of a unix socket to which only this user can connect. If a stream fails,
 * the calls on it fail with its error.
 *
 * The socket is necessary: if Node.js got the JavaScript streams directly, it would deliver a whole HTTP/2 response
 * before connect-node reads it, and the call would fail with "Premature close".
 */
export async function throughTunnel(
  api: string,
  open: () => Duplex,
  dial: (socketPath: string) => Transport,
): Promise<Replica> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-"));
  /** Error of the newest stream, which the calls on it report instead of a closed connection. */
  let failure: Error | undefined;
  const server = createServer((near) => {
    failure = undefined;
    const far = open().once("error", (error) => {
      failure = error;
    });
    // Closes both ends if one fails; `failure` has the error.
    pipeline(near, far, near, () => undefined);
  });
  const path = join(folder, "socket");
  await once(server.listen(path), "listening");
  const explain = (error: unknown): never => {
    throw failure === undefined ? error : new ConnectError(failure.message, Code.Unavailable);
  };
  const transport = dial(path);
  return {
    api,
    transport: {
      unary: (...call) => transport.unary(...call).catch(explain),
      stream: (...call) => transport.stream(...call).catch(explain),
    },
    close: () => {
      server.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
