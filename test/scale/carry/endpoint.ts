import { createServer, type Socket } from "node:net";

/**
 * The endpoint of the benchmark, in a process of its own: the first byte of a connection says what it does. `a`: a
 * short answer and the end. `d`: as many megabytes as follow in decimal, up to a line break. `u`: takes everything and
 * then answers. `k`: answers and keeps the connection. Prints its port.
 */
const megabyte = Buffer.alloc(1_048_576, "x");

function sendMegabytes(socket: Socket, count: number): void {
  let left = count;
  const fill = (): void => {
    while (left > 0) {
      left--;
      if (!socket.write(megabyte)) return void socket.once("drain", fill);
    }
    socket.end();
  };
  fill();
}

const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
  socket.on("error", () => undefined);
  socket.once("data", (data) => {
    const text = String(data.subarray(0, 20));
    if (text.startsWith("a")) socket.end("x".repeat(100));
    else if (text.startsWith("d")) sendMegabytes(socket, Number.parseInt(text.slice(1), 10));
    else if (text.startsWith("u")) socket.resume().once("end", () => socket.end("y"));
    else socket.write("k");
  });
});
server.listen(0, "0.0.0.0", 4_096, () => {
  const address = server.address();
  process.stdout.write(`${typeof address === "object" && address !== null ? address.port : 0}\n`);
});
