import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** Totals of short connections. */
export interface ShortConnections {
  readonly answered: number;
  /** A line for each connection that failed. *Shape:* `ECONNRESET after 12 ms`. */
  readonly failures: readonly string[];
  readonly elapsedMs: number;
}

// `short-connections.ts ADDRESS PORT PAUSE` opens two connections at a time, closes each after its first answer, opens
// the next after a pause of so many milliseconds, and goes on until its standard input ends or 20 have failed. It
// prints the number of answers after every 100, and `ShortConnections` as JSON at the end.

const [, , host = "", port = "", pauseMs = ""] = process.argv;
const atOnce = 2;
const mostFailures = 20;
const failures: string[] = [];
let answered = 0;
let isOver = false;

function connectOnce(): Promise<void> {
  return new Promise((resolve) => {
    const startMs = performance.now();
    let isAnswered = false;
    let failure = "closed without an answer";
    const socket = connect({ host, port: Number(port), timeout: 60_000 });
    socket.on("data", () => {
      isAnswered = true;
      socket.destroy();
    });
    socket.on("timeout", () => {
      failure = "no answer";
      socket.destroy();
    });
    socket.on("error", ({ code = "" }: NodeJS.ErrnoException) => {
      failure = code;
    });
    socket.once("close", () => {
      if (!isAnswered) failures.push(`${failure} after ${(performance.now() - startMs).toFixed(0)} ms`);
      else if (++answered % 100 === 0) process.stdout.write(`${answered}\n`);
      resolve();
    });
  });
}

process.stdin.resume().once("end", () => {
  isOver = true;
});
const startMs = performance.now();
const series = Array.from({ length: atOnce }, async () => {
  while (!isOver && failures.length < mostFailures) {
    await connectOnce();
    await sleep(Number(pauseMs));
  }
});
await Promise.all(series);
const totals: ShortConnections = { answered, failures, elapsedMs: Math.round(performance.now() - startMs) };
process.stdout.write(`${JSON.stringify(totals)}\n`);
process.exit(0);
