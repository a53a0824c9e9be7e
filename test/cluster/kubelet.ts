import { spawn } from "node:child_process";
import type { IncomingMessage } from "node:http";
import { createServer } from "node:https";
import { connect } from "node:net";
import type { Duplex, Readable } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { listen } from "./ports.ts";

/**
 * The two endpoints of a kubelet that lead into pods, for the API server of these tests: `/portForward` connects to the
 * port on this machine, where the test runs what the pod would, and `/exec` runs the command here, with `run` in front.
 * The messages are those of k8s.io/kubelet `pkg/cri/streaming`, protocol v4.channel.k8s.io; a real kubelet answers in
 * test/e2e.
 */
export async function startKubelet(
  tls: { readonly key: Buffer; readonly cert: Buffer },
  run: (command: readonly string[]) => readonly string[],
): Promise<{ readonly port: number; close(): void }> {
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => "v4.channel.k8s.io" });
  const server = createServer(tls);
  server.on("upgrade", (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    const url = new URL(request.url ?? "", "https://kubelet");
    sockets.handleUpgrade(request, stream, head, (socket) => {
      if (url.pathname.startsWith("/portForward/")) forward(socket, Number(url.searchParams.get("port")));
      else execute(socket, run(url.searchParams.getAll("command")));
    });
  });
  return { port: await listen(server), close: () => server.close() };
}

function send(socket: WebSocket, channel: number, data: Buffer): void {
  socket.send(Buffer.concat([Buffer.of(channel), data]));
}

function pass(source: Readable, socket: WebSocket, channel: number): void {
  source.on("data", (data: Buffer) => send(socket, channel, data));
}

function forward(socket: WebSocket, port: number): void {
  for (const channel of [0, 1]) send(socket, channel, Buffer.of(port & 255, port >> 8));
  const pod = connect(port, "127.0.0.1");
  pod.on("error", (error) => send(socket, 1, Buffer.from(error.message)));
  pod.on("close", () => socket.close());
  pass(pod, socket, 0);
  socket.on("message", (message) => pod.write(message.subarray(1)));
  socket.on("close", () => pod.destroy());
}

function execute(socket: WebSocket, [program = "", ...args]: readonly string[]): void {
  const child = spawn(program, args);
  for (const channel of [1, 2, 3]) send(socket, channel, Buffer.alloc(0));
  pass(child.stdout, socket, 1);
  pass(child.stderr, socket, 2);
  child.on("close", (code) => {
    const status = code === 0 ? { status: "Success" } : { status: "Failure", message: `exit code ${code}` };
    send(socket, 3, Buffer.from(JSON.stringify(status)));
    socket.close();
  });
  socket.on("message", (message) => child.stdin.write(message.subarray(1)));
  socket.on("close", () => child.kill());
}
