import { createRequire } from "node:module";

/**
 * Opens connections one after the other in the network namespace of this process, and prints their times:
 * `connect-loop.ts COUNT ADDRESS:PORT…`. All of them lead to 10.255.0.1:8080, where this process listens.
 *
 * It calls the C library, because a connection through `node:net` takes ten times longer than the kernel needs for it.
 */
const [countText = "1000", ...targets] = process.argv.slice(2);
const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
const library = koffi.load(null);
const openSocket = library.func("int socket(int, int, int)");
const setOption = library.func("int setsockopt(int, int, int, const uint8_t *, uint32_t)");
const bind = library.func("int bind(int, const uint8_t *, uint32_t)");
const listen = library.func("int listen(int, int)");
const accept = library.func("int accept4(int, void *, void *, int)");
const connect = library.func("int connect(int, const uint8_t *, uint32_t)");
const close = library.func("int close(int)");
const [internet, stream, nonBlocking, solSocket, lingerOption] = [2, 1, 0o4000, 1, 13];
/** On, for 0 seconds: a close resets the connection, so that no port stays in use. */
const noLinger = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);

function socketAddress(text: string): Buffer {
  const [host = "", port = ""] = text.split(":");
  const bytes = Buffer.alloc(16);
  bytes.writeUInt16LE(internet, 0);
  bytes.writeUInt16BE(Number(port), 2);
  for (const [at, part] of host.split(".").entries()) bytes[4 + at] = Number(part);
  return bytes;
}

const server = openSocket(internet, stream | nonBlocking, 0);
const own = socketAddress("10.255.0.1:8080");
if (bind(server, own, own.length) !== 0 || listen(server, 1_024) !== 0) throw new Error("cannot listen");

function acceptAll(): void {
  for (;;) {
    const accepted: number = accept(server, null, null, 0);
    if (accepted < 0) return;
    close(accepted);
  }
}

const addresses = targets.map(socketAddress);
const times: number[] = [];
const cpu = process.cpuUsage();
for (let at = 0; at < Number(countText); at++) {
  const address = addresses[at % addresses.length] ?? own;
  const startMs = performance.now();
  const socket: number = openSocket(internet, stream, 0);
  const result: number = connect(socket, address, address.length);
  times.push((performance.now() - startMs) * 1_000);
  if (result !== 0) throw new Error(`${targets[at % targets.length]} does not answer (errno ${koffi.errno()})`);
  setOption(socket, solSocket, lingerOption, noLinger, noLinger.length);
  close(socket);
  if (at % 64 === 63) acceptAll();
}
acceptAll();
const { user, system } = process.cpuUsage(cpu);
process.stdout.write(JSON.stringify({ times: times.map((us) => Math.round(us * 10) / 10), cpuUs: user + system }));
