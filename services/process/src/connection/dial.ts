import { connect as connectSocket, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { ProcessError } from "../process-error.ts";
import { withoutCredentials } from "../redact.ts";
import type { TlsFiles } from "../tls-files.ts";
import { pingHeader, SilenceLimit } from "./silence-limit.ts";

/** Where a watcher is reached. */
export type ApiAddress =
  | { readonly kind: "tcp"; readonly host: string; readonly port: number; readonly isTls: boolean }
  | { readonly kind: "unix"; readonly path: string };

/** The watcher's standard port, as in KPNG. */
export const standardApiPort = 12_090;

/**
 * Parses `--api`.
 *
 * | text | meaning |
 * |---|---|
 * | `127.0.0.1:12090`, `[::1]:12090`, `watcher.kube-system:12090` | TCP; TLS if files are given |
 * | `watcher` | the same at port 12090 |
 * | `tcp://host:port` | as `host:port` |
 * | `http://host:port`, `https://host:port` | TCP without or with TLS |
 * | `unix:///run/kpng.sock`, `unix://kpng.sock` | a unix socket |
 *
 * `shown` is what a message calls it. Errors: BAD_OPTION.
 */
export function parseApiAddress(text: string, hasTlsFiles: boolean, shown = withoutCredentials(text)): ApiAddress {
  const unix = /^unix:(?:\/\/)?(\/?[^/].*)$/.exec(text);
  if (unix?.[1] !== undefined) return { kind: "unix", path: unix[1] };
  const url = /^(tcp|https?):\/\/(.+?)\/?$/.exec(text);
  const rest = url?.[2] ?? text;
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?$/.exec(rest);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3] ?? standardApiPort);
  if (host === undefined || port < 1 || port > 65_535) {
    const hint = shown.includes("@")
      ? "it names a user, and a watcher asks for client certificates alone"
      : "write host:port, [IPv6]:port or unix:///path";
    throw new ProcessError("BAD_OPTION", `--api "${shown}" is no address: ${hint}`);
  }
  if (url?.[1] === "http" && hasTlsFiles) {
    throw new ProcessError("BAD_OPTION", `--api "${shown}" says no TLS, but TLS files are given`);
  }
  return { kind: "tcp", host, port, isTls: url?.[1] === "https" || hasTlsFiles };
}

export interface DialOptions {
  /** See parseApiAddress. */
  readonly api: string;
  readonly tls?: TlsFiles | undefined;
  /** Largest message that is accepted, in bytes. Default 64 MiB; KPNG's `--max-msg-size`. */
  readonly maxMessageBytes?: number | undefined;
}

/**
 * Returns a gRPC transport to a watcher; it connects when it is first used, and again after a loss.
 *
 * Errors: BAD_OPTION.
 */
export function dial({ api, tls, maxMessageBytes = 64 * 1024 * 1024 }: DialOptions): Transport {
  const address = parseApiAddress(api, tls !== undefined);
  const silence = new SilenceLimit();
  const transport = createGrpcTransport({
    baseUrl: baseUrlOf(address),
    readMaxBytes: maxMessageBytes,
    // Nodes send a name and receive everything: asking for compressed messages costs the watcher CPU for each of them.
    acceptCompression: [],
    // A watcher that lost its power never closes the connection: the kernel's probes notice, and an unanswered ping. Pings
    // stay rare, because a Go server ends a connection that pings it more often than every five minutes. Ours say how
    // often they ping.
    pingIntervalMs: 330_000,
    pingTimeoutMs: 20_000,
    nodeOptions: { createConnection: () => silence.watch(openSocket(address, tls)) },
  });
  return {
    unary: (...call) => transport.unary(...call),
    async stream(...call) {
      const response = await transport.stream(...call);
      silence.expect(response.header.get(pingHeader));
      return response;
    },
  };
}

function baseUrlOf(address: ApiAddress): string {
  if (address.kind === "unix") return "http://localhost";
  const host = address.host.includes(":") ? `[${address.host}]` : address.host;
  return `${address.isTls ? "https" : "http"}://${host}:${address.port}`;
}

function openSocket(address: ApiAddress, tls: TlsFiles | undefined): Socket {
  if (address.kind === "unix") return connectSocket(address.path);
  const { host, port } = address;
  // An address is no name that a certificate is asked for by (RFC 6066 §3).
  const serverName = isIP(host) === 0 ? { servername: host } : {};
  const socket = address.isTls
    ? connectTls({ host, port, ALPNProtocols: ["h2"], minVersion: "TLSv1.2", ...serverName, ...tls })
    : connectSocket({ host, port });
  return socket.setKeepAlive(true, 30_000);
}
