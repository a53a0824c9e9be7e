import { createServer } from "node:http";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import { connectKube } from "@kpng/source/kube/connect.ts";
import { expect, onTestFinished, test } from "vitest";
import { WebSocketServer } from "ws";
import { listen } from "../../../../test/cluster/ports.ts";
import { type Channels, exec, portForward } from "./channels.ts";
import { NamespaceClient } from "./pods.ts";

/** Opens a stream to a server that sends these messages in one packet with the opening, and ends. */
async function streamWith(channels: Channels, messages: readonly Buffer[]) {
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => "v4.channel.k8s.io" });
  const server = createServer().on("upgrade", (request, stream: Socket, head: Buffer) => {
    stream.cork();
    sockets.handleUpgrade(request, stream, head, (socket) => {
      for (const message of messages) socket.send(message);
      socket.close();
      stream.uncork();
    });
  });
  onTestFinished(() => void server.close());
  const client = connectKube({ server: `http://127.0.0.1:${await listen(server)}` });
  const namespace = new NamespaceClient("kube-system", client, new AbortController().signal);
  return namespace.open("pods/x", "pods/p/x", channels);
}

const message = (channel: number, body: string) => Buffer.concat([Buffer.of(channel), Buffer.from(body)]);

test("what a kubelet sends with the opening of the WebSocket is not lost, and the port is no data", async () => {
  const stream = await streamWith(portForward, [message(0, "pp"), message(1, "pp"), message(0, "a"), message(0, "b")]);
  expect(await text(stream)).toBe("ab");
});

test.each<readonly [string, Channels, readonly Buffer[], string]>([
  ["a port that nothing listens on", portForward, [message(1, "pp"), message(1, "refused")], "refused"],
  ["a command that fails", exec, [message(2, "no socket\n"), message(3, '{"status":"Failure"}')], "no socket"],
  ["a command that is not there", exec, [message(3, '{"status":"Failure","message":"no kpng"}')], "no kpng"],
])("%s fails the stream with the kubelet's reason", async (_name, channels, messages, reason) => {
  await expect(text(await streamWith(channels, messages))).rejects.toThrow(reason);
});
