import { createRequire } from "node:module";

/**
 * Blocking TCP sockets of the C library, for the client and the server of `packet-path`: a connection through
 * `node:net` takes ten times longer than the kernel needs for it.
 */
const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
const library = koffi.load(null);
const openSocket = library.func("int socket(int, int, int)");
const setOption = library.func("int setsockopt(int, int, int, const uint8_t *, uint32_t)");
const bindSocket = library.func("int bind(int, const uint8_t *, uint32_t)");
const listenAt = library.func("int listen(int, int)");
const connectTo = library.func("int connect(int, const uint8_t *, uint32_t)");
export const accept = library.func("int accept(int, void *, void *)");
export const receive = library.func("long recv(int, uint8_t *, size_t, int)");
export const send = library.func("long send(int, const uint8_t *, size_t, int)");
export const shutdown = library.func("int shutdown(int, int)");
export const close = library.func("int close(int)");

const [internet, stream, solSocket, tcp] = [2, 1, 1, 6];
const options = { reuseAddress: 2, linger: 13, receiveTimeout: 20, sendTimeout: 21 };
const noDelay = 1;
const on = Buffer.from([1, 0, 0, 0]);
/** On, for 0 seconds: a close resets the connection, so that no port stays in use. */
const noLinger = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
const tenSeconds = Buffer.from([10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

/** Returns a `struct sockaddr_in`. *Shape of `text`:* `10.96.0.1:80`. */
export function socketAddress(text: string): Buffer {
  const [host = "", port = ""] = text.split(":");
  const bytes = Buffer.alloc(16);
  bytes.writeUInt16LE(internet, 0);
  bytes.writeUInt16BE(Number(port), 2);
  for (const [at, part] of host.split(".").entries()) bytes[4 + at] = Number(part);
  return bytes;
}

/** Connects, which may take ten seconds, as each later call. Returns the descriptor. Errors: no connection. */
export function connect(address: Buffer): number {
  const socket: number = openSocket(internet, stream, 0);
  setOption(socket, solSocket, options.sendTimeout, tenSeconds, tenSeconds.length);
  if (connectTo(socket, address, address.length) !== 0) throw new Error(`no connection (errno ${koffi.errno()})`);
  return socket;
}

/** Sends small messages at once, and waits ten seconds for answers. */
export function prepareForRequests(socket: number): void {
  setOption(socket, tcp, noDelay, on, on.length);
  setOption(socket, solSocket, options.receiveTimeout, tenSeconds, tenSeconds.length);
}

/** Closes a connection with a reset. */
export function reset(socket: number): void {
  setOption(socket, solSocket, options.linger, noLinger, noLinger.length);
  close(socket);
}

/** Listens, and returns the descriptor. Errors: the address is not free. */
export function listen(address: Buffer): number {
  const socket: number = openSocket(internet, stream, 0);
  setOption(socket, solSocket, options.reuseAddress, on, on.length);
  if (bindSocket(socket, address, address.length) === 0 && listenAt(socket, 1_024) === 0) return socket;
  throw new Error(`cannot listen (errno ${koffi.errno()})`);
}
