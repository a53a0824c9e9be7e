import { Duplex } from "node:stream";
import { isRecord } from "@kpng/model/narrowing.ts";
import { parseJson } from "@kpng/source/kube/connection.ts";
import type { WebSocket } from "ws";

/** WebSocket subprotocol in which each message begins with the number of its channel. */
export const channelProtocol = "v4.channel.k8s.io";

/**
 * The numbers of the channels on which a kubelet sends. It receives on channel 0.
 *
 * Source: k8s.io/kubelet `pkg/cri/streaming/portforward/websocket.go` and `remotecommand/websocket.go`.
 */
export interface Channels {
  readonly data: number;
  /** Channel of standard error: text for people, which an error message quotes. */
  readonly stderr?: number | undefined;
  /** Channel that says why the other side ended: a string, or a Status object, which may report success. */
  readonly end: number;
  /** Length of the first message on each channel. That message contains the port, not data. */
  readonly headBytes: number;
}

/** Channels of a connection to a pod's port. */
export const portForward: Channels = { data: 0, end: 1, headBytes: 2 };

/** Channels of a command in a pod: its standard input and output. */
export const exec: Channels = { data: 1, stderr: 2, end: 3, headBytes: 0 };

/**
 * Makes a stream from a WebSocket's channels. Data written before the WebSocket is open waits until then. The stream is
 * destroyed by an error from `open` or an error that the kubelet reports.
 */
export function streamOf(open: () => Promise<WebSocket>, channels: Channels): Duplex {
  const opening = open();
  const stream = new Duplex({
    // The protocol cannot close only one direction.
    allowHalfOpen: false,
    read: () => void opening.then((socket) => socket.resume(), ignore),
    write: (data: Buffer, _encoding, done) => {
      opening.then((socket) => socket.send(Buffer.concat([toKubelet, data]), done), done);
    },
    final: (done) => {
      opening.then((socket) => socket.close(), ignore);
      done();
    },
    destroy: (error, done) => {
      opening.then((socket) => socket.terminate(), ignore);
      done(error);
    },
  });
  opening.then(
    (socket) => receive(socket, stream, channels),
    (error: Error) => stream.destroy(error),
  );
  return stream;
}

const toKubelet = Buffer.of(0);

/** For a failure to open, which destroys the stream and needs no further report. */
function ignore(): void {}

function receive(socket: WebSocket, stream: Duplex, { data, stderr, end, headBytes }: Channels): void {
  const begun = new Set<number | undefined>();
  /** Standard error; `kpng connect` prints at most one error there. */
  let errorText = "";
  socket.on("message", (message) => {
    const channel = message[0];
    const body = message.subarray(begun.has(channel) ? 1 : 1 + headBytes);
    begun.add(channel);
    if (body.length === 0) return;
    if (channel === data && !stream.push(body)) socket.pause();
    if (channel === stderr) errorText += body.toString("utf8");
    const problem = channel === end ? problemOf(body.toString("utf8")) : undefined;
    if (problem !== undefined) stream.destroy(new Error(errorText.trim() || problem));
  });
  socket.on("close", () => stream.push(null));
  socket.on("error", (error) => stream.destroy(error));
}

function problemOf(text: string): string | undefined {
  const status = parseJson(text);
  if (!isRecord(status)) return text.trim();
  return status.status === "Success" ? undefined : String(status.message ?? status.reason ?? text);
}
