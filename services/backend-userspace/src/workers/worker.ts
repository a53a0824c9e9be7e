import { createServer, type Server } from "node:net";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import { Connection, listenBacklog, type RelayContext, relayServerOptions } from "../relay/connection.ts";
import { ReadBuffer } from "../relay/read-buffer.ts";
import { ReadGarbage } from "../relay/read-garbage.ts";
import { sweep, sweepIntervalMs } from "../relay/sweeper.ts";
import { AskedPassage } from "./asked-passage.ts";
import type { FromWorker, ToWorker, WorkerSettings } from "./messages.ts";

// The program of a worker (`--workers`), which `Workers` starts: accepts connections from shared listening sockets and
// carries them. It has no plan. When the process with the plan closes the channel, or ends, all connections are reset.

const reportMs = 1_000;
/** Messages that may wait while the process with the plan reads nothing; beyond it, new clients are reset. */
const maxUnsent = listenBacklog;
/** Turns of the event loop in which a connection closes whose both sides have ended. */
const endTurns = 4;
const { connectTimeoutMs, tcp }: WorkerSettings = JSON.parse(process.argv[3] ?? "");
const servers = new Map<number, Server>();
const passages = new Map<number, { readonly passage: AskedPassage; readonly connection: Connection }>();
const open = new Set<Connection>();
const relay: RelayContext = { open, buffer: new ReadBuffer(), garbage: new ReadGarbage(), connectTimeoutMs };
let lastId = 0;
let unsent = 0;
let isReporting = false;

function send(message: FromWorker, onSent: () => void = () => undefined): void {
  if (!process.connected) return;
  unsent++;
  process.send?.(message, undefined, undefined, () => {
    unsent--;
    onSent();
  });
}

function listen(listener: number, received: Server | undefined): void {
  if (received === undefined) return;
  const server = createServer(relayServerOptions, (client) => {
    if (unsent >= maxUnsent) {
      client.on("error", () => undefined);
      client.resetAndDestroy();
      return;
    }
    const id = ++lastId;
    const { remoteAddress: address, remotePort: port = 0 } = client;
    const passage = new AskedPassage({ id, listener, address, port }, (message) => {
      if (message.kind === "ended") passages.delete(id);
      send(message);
    });
    passages.set(id, { passage, connection: new Connection(client, passage, relay) });
  });
  server.on("error", () => {
    if (unsent < maxUnsent) send({ kind: "failed", listener });
  });
  servers.set(listener, server);
  // The server that Node.js made of the received socket listens with a backlog of 511, also for the other processes,
  // and its connections are not half-open. This server takes the socket over with its own options and backlog.
  server.listen(received, listenBacklog);
}

async function close(listener: number): Promise<void> {
  servers.get(listener)?.close();
  servers.delete(listener);
  // Connections whose end has already arrived are reported before, so that the sync which waits for this answer can
  // give the address back.
  for (let turn = 0; turn < endTurns; turn++) await nextTurn();
  send({ kind: "deaf", listener });
}

function report(): void {
  if (isReporting) return;
  const reports = [...passages.values()]
    .map(({ passage }) => passage.takeProgress())
    .filter((one) => one !== undefined);
  isReporting = true;
  send({ kind: "progress", reports }, () => {
    isReporting = false;
  });
}

const limits = { ...tcp, drainMs: 0 };
const intervalMs = sweepIntervalMs(limits);
setInterval(() => sweep(open, limits, intervalMs, performance.now()), intervalMs);
setInterval(report, reportMs);
process.on("message", (message: ToWorker, received: Server | undefined) => {
  if (message.kind === "listen") listen(message.listener, received);
  else if (message.kind === "close") void close(message.listener);
  else if (message.kind === "to") passages.get(message.id)?.passage.answer(message.to);
  else passages.get(message.id)?.connection.reset(message.end);
});
// The process with the plan says when to end; a terminal or a supervisor sends its signals to all processes.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => undefined);
process.on("disconnect", () => process.exit());
// Also after an error of this program. A regular end would tell clients that they have all data.
process.on("exit", () => {
  for (const connection of open) connection.reset("stopped");
});
// The process with the plan may have ended while this one was starting.
if (process.connected) send({ kind: "ready" });
else process.exit();
