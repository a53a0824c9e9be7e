import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** The client's side of the benchmark of kpng-userspace. All connections go to 127.0.0.1. */

/** Makes short connections, 32 at a time, until the time is over; returns their number. */
export async function shortConnections(port: number, durationMs: number): Promise<number> {
  const deadlineMs = performance.now() + durationMs;
  let count = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() < deadlineMs) {
      const socket = connect(port, "127.0.0.1");
      socket.write("a");
      await received(socket);
      count++;
    }
  };
  await Promise.all(Array.from({ length: 32 }, worker));
  return count;
}

/** Number of connections of a download or upload. */
const connections = 4;

/** Downloads so many megabytes over each connection; returns the bytes received. */
export async function download(port: number, megabytes: number): Promise<number> {
  const one = async (): Promise<number> => {
    let bytes = 0;
    const onread = {
      buffer: Buffer.alloc(262_144),
      callback: (length: number) => {
        bytes += length;
        return true;
      },
    };
    const socket = connect({ port, host: "127.0.0.1", onread });
    socket.write(`d${megabytes}\n`);
    await once(socket, "close");
    return bytes;
  };
  return (await Promise.all(Array.from({ length: connections }, one))).reduce((sum, bytes) => sum + bytes, 0);
}

/** Uploads so many megabytes over each connection; returns the bytes sent when all have arrived. */
export async function upload(port: number, megabytes: number): Promise<number> {
  const block = Buffer.alloc(1_048_576, "u");
  const one = async (): Promise<void> => {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    for (let sent = 0; sent < megabytes; sent++) if (!socket.write(block)) await once(socket, "drain");
    socket.end();
    await received(socket);
  };
  await Promise.all(Array.from({ length: connections }, one));
  return megabytes * connections * block.length;
}

/** Opens connections that stay, each after one exchange. Returns a function that closes them. */
export async function keepOpen(port: number, count: number): Promise<() => void> {
  const sockets: Socket[] = [];
  for (let start = 0; start < count; start += 100) {
    const some = Array.from({ length: Math.min(100, count - start) }, async () => {
      const socket = connect({ port, host: "127.0.0.1" });
      sockets.push(socket);
      socket.write("k");
      await once(socket, "data");
    });
    await Promise.all(some);
  }
  return () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
}

async function received(socket: Socket): Promise<void> {
  socket.resume();
  await once(socket, "close");
}
