import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { setMaxListeners } from "node:events";
import { request } from "node:http";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Answer, HttpAnswer, Question } from "./question.ts";

type Ask = Extract<Question, { kind: "ask" }>;
type AwaitQuestion = Extract<Question, { kind: "await" }>;
type Target = Pick<Ask, "address" | "port" | "from" | "timeoutMs">;

/** Sends round after round, because whom a packet goes to is chance. */
export async function ask(question: Ask): Promise<readonly Answer[]> {
  const { protocol, atOnce, atMost, wanted } = question;
  const answers: Answer[] = [];
  const names = new Set<string>();
  do {
    const round = Array.from({ length: atOnce }, () => (protocol === "tcp" ? askTcp(question) : askUdp(question)));
    for (const answer of await Promise.all(round)) {
      answers.push(answer);
      if (answer.kind === "answer") names.add(answer.name);
    }
    // More packets make no answer out of silence.
  } while (names.size < wanted && names.size > 0 && answers.length < atMost);
  return answers;
}

/** One connection, up to its first line; given up, and silent, when `signal` aborts. */
export async function askTcp(target: Target, signal?: AbortSignal): Promise<Answer> {
  for (;;) {
    const answer = await askTcpFrom(nextPort(), target, signal);
    if (answer.kind !== "error" || answer.code !== "EADDRINUSE") return answer;
  }
}

function askTcpFrom(
  localPort: number,
  { address, port, from, timeoutMs }: Target,
  signal: AbortSignal | undefined,
): Promise<Answer> {
  return new Promise((resolve) => {
    const localAddress = from === undefined ? {} : { localAddress: from };
    const socket = connect({ host: address, port, localPort, ...localAddress });
    let text = "";
    const end = (answer: Answer): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", giveUp);
      // A reset leaves no connection in TIME_WAIT, neither here nor in the node's conntrack.
      socket.resetAndDestroy();
      resolve(answer);
    };
    const giveUp = (): void => end({ kind: "silent" });
    const timer = setTimeout(giveUp, timeoutMs);
    signal?.addEventListener("abort", giveUp);
    socket.on("data", (data) => {
      text += String(data);
      if (text.endsWith("\n")) end(JSON.parse(`{"kind":"answer",${text.slice(1)}`));
    });
    socket.on("error", (error: NodeJS.ErrnoException) => end(fromError(error)));
  });
}

let lastPort = 10_000;

/**
 * A local port that was not used for long. One that the system chooses may be one that the node still remembers from an
 * earlier test: a datagram would go where that one went, and a SYN can count as a bad packet of the old connection.
 */
export function nextPort(): number {
  lastPort = lastPort >= 60_000 ? 10_000 : lastPort + 1;
  return lastPort;
}

/** Returns a socket that is bound to a port of `nextPort`. */
export async function freshUdpSocket(address: string, from: string | undefined): Promise<UdpSocket> {
  for (;;) {
    const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
    const isBound = await new Promise<boolean>((resolve) => {
      socket.once("error", () => resolve(false));
      socket.bind(nextPort(), from, () => resolve(true));
    });
    socket.removeAllListeners("error");
    if (isBound) return socket;
    socket.close();
  }
}

/** One datagram from a port of its own, and what comes back. */
export async function askUdp({ address, port, from, timeoutMs }: Target): Promise<Answer> {
  const socket = await freshUdpSocket(address, from);
  return new Promise((resolve) => {
    const end = (answer: Answer): void => {
      clearTimeout(timer);
      socket.close();
      resolve(answer);
    };
    const timer = setTimeout(() => end({ kind: "silent" }), timeoutMs);
    socket.on("error", (error: NodeJS.ErrnoException) => end(fromError(error)));
    socket.on("message", (data) => end(JSON.parse(`{"kind":"answer",${String(data).slice(1)}`)));
    // Only a connected socket is told that its datagram was refused.
    socket.connect(port, address, () => socket.send("who?"));
  });
}

/** How often a connection is tried that is waited for. */
const tryEveryMs = 20;
/** How long a try may take, which bounds how many there are at once. */
const tryMs = 5_000;

/**
 * Returns true once this name answers, false if it does not in time.
 *
 * The next try does not wait for the one before: a SYN that came before the rules is lost, and how long an answer takes
 * says nothing on a busy machine.
 */
export async function awaitName({ name, timeoutMs, ...target }: AwaitQuestion): Promise<boolean> {
  const deadlineMs = performance.now() + timeoutMs;
  const served = new AbortController();
  // One for each try.
  setMaxListeners(0, served.signal);
  while (!served.signal.aborted && performance.now() < deadlineMs) {
    void askTcp({ ...target, timeoutMs: tryMs }, served.signal).then((answer) => {
      if (answer.kind === "answer" && answer.name === name) served.abort();
    });
    await sleep(tryEveryMs, undefined, { signal: served.signal }).catch(() => undefined);
  }
  const isServed = served.signal.aborted;
  // Whatever is still tried is over now.
  served.abort();
  return isServed;
}

export function askHttp(question: Extract<Question, { kind: "http" }>): Promise<HttpAnswer> {
  const { address, port, path = "/", timeoutMs } = question;
  return new Promise((resolve) => {
    const call = request({ host: address, port, path, timeout: timeoutMs, agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text: string) => {
        body += text;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
    });
    call.on("timeout", () => call.destroy(new Error("timeout")));
    call.on("error", (error) => resolve({ status: 0, body: error.message }));
    call.end();
  });
}

export function fromError(error: NodeJS.ErrnoException): Answer {
  return error.code === "ECONNREFUSED" ? { kind: "refused" } : { kind: "error", code: error.code ?? error.message };
}
