import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { setMaxListeners } from "node:events";
import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { AgentRequest, Answer, HttpAnswer } from "./request.ts";

/**
 * Sends packets in rounds until enough different names have answered: each packet reaches a random endpoint. The agent
 * (`agent.ts`) calls it for the request "ask". Separate from `flow.ts` and `probe.ts`, which make continuous traffic:
 * this file sends packets one by one.
 */
export async function ask(request: Ask): Promise<readonly Answer[]> {
  const { protocol, atOnce, atMost, wanted } = request;
  const answers: Answer[] = [];
  const names = new Set<string>();
  do {
    const round = Array.from({ length: atOnce }, () =>
      protocol === "tcp" ? askTcp(request) : askUdp(request, sendings),
    );
    for (const answer of await Promise.all(round)) {
      answers.push(answer);
      if (answer.kind === "answer") names.add(answer.name);
    }
    // If no packet was answered so far, more packets will not help.
  } while (names.size < wanted && names.size > 0 && answers.length < atMost);
  return answers;
}

/** Makes one connection and reads its first line. Returns "silent" when `signal` aborts. */
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
 * Returns a local port that has not been used for a long time.
 *
 * For a port that the system chooses, the node may still have a conntrack entry from an earlier test: a datagram would
 * follow that entry, and a SYN could be invalid in the old connection.
 */
export function nextPort(): number {
  lastPort = lastPort >= 60_000 ? 10_000 : lastPort + 1;
  return lastPort;
}

/** Returns a UDP socket that is bound to a port of `nextPort`. */
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

/**
 * How often `ask` sends a datagram while nothing comes back, as clients of UDP do: one datagram or ICMP error may be
 * lost on a busy machine. All come from one port, so the flow keeps its endpoint and a dead endpoint is not hidden.
 */
const sendings = 3;

/** Sends a datagram from a new port, `times` in all while nothing comes back, and returns the answer. */
export async function askUdp({ address, port, from, timeoutMs }: Target, times = 1): Promise<Answer> {
  const socket = await freshUdpSocket(address, from);
  return new Promise((resolve) => {
    const end = (answer: Answer): void => {
      clearTimeout(timer);
      clearInterval(resend);
      socket.close();
      resolve(answer);
    };
    const timer = setTimeout(() => end({ kind: "silent" }), timeoutMs);
    const resend = setInterval(() => socket.send("who?"), timeoutMs / times);
    socket.on("error", (error: NodeJS.ErrnoException) => end(fromError(error)));
    socket.on("message", (data) => end(JSON.parse(`{"kind":"answer",${String(data).slice(1)}`)));
    // Only a connected socket reports that its datagram was refused.
    socket.connect(port, address, (error?: Error | null) => {
      // A hook of sockets may refuse it at once.
      if (error) end(fromError(error));
      else socket.send("who?");
    });
  });
}

const tryEveryMs = 20;
/** Time limit of one attempt; bounds the number of attempts at the same time. */
const tryMs = 5_000;

/**
 * Returns true once this name answers, false after `timeoutMs`.
 *
 * Attempts overlap: a SYN sent before the rules were installed is lost, and on a busy machine an answer may take longer
 * than the interval between attempts.
 */
export async function awaitName({ name, timeoutMs, ...target }: AwaitRequest): Promise<boolean> {
  const startMs = performance.now();
  const deadlineMs = startMs + timeoutMs;
  const served = new AbortController();
  // Each attempt adds a listener.
  setMaxListeners(0, served.signal);
  while (!served.signal.aborted && performance.now() < deadlineMs) {
    void askTcp({ ...target, timeoutMs: tryMs }, served.signal).then((answer) => {
      if (answer.kind === "answer" && answer.name === name) served.abort();
    });
    // Where it takes long, as in a guest, many attempts would slow down what they wait for.
    const pauseMs = Math.min(Math.max(tryEveryMs, (performance.now() - startMs) / 20), 250);
    await sleep(pauseMs, undefined, { signal: served.signal }).catch(() => undefined);
  }
  const isServed = served.signal.aborted;
  // Cancels the attempts that are still running.
  served.abort();
  return isServed;
}

/** Sends one GET request. */
export function askHttp(request: Extract<AgentRequest, { kind: "http" }>): Promise<HttpAnswer> {
  const { address, port, path = "/", timeoutMs } = request;
  return new Promise((resolve) => {
    const call = httpRequest({ host: address, port, path, timeout: timeoutMs, agent: false }, (response) => {
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

function fromError(error: NodeJS.ErrnoException): Answer {
  return error.code === "ECONNREFUSED" ? { kind: "refused" } : { kind: "error", code: error.code ?? error.message };
}

type Ask = Extract<AgentRequest, { kind: "ask" }>;
type AwaitRequest = Extract<AgentRequest, { kind: "await" }>;
type Target = Pick<Ask, "address" | "port" | "from" | "timeoutMs">;
