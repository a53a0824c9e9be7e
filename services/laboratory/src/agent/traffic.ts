import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { setMaxListeners } from "node:events";
import { request as httpRequest } from "node:http";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { AgentRequest, Answer, FlowState, FlowTotals, HttpAnswer, ProbeTotals } from "./request.ts";
import { startSending } from "./serve.ts";

/**
 * Sends packets in rounds until enough different names have answered, because each packet reaches a random endpoint.
 */
export async function ask(request: Ask): Promise<readonly Answer[]> {
  const { protocol, atOnce, atMost, wanted } = request;
  const answers: Answer[] = [];
  const names = new Set<string>();
  do {
    const round = Array.from({ length: atOnce }, () =>
      protocol === "tcp" ? askTcp(request) : askUdp(request, askSendings),
    );
    for (const answer of await Promise.all(round)) {
      answers.push(answer);
      if (answer.kind === "answer") names.add(answer.name);
    }
    // If no packet has been answered so far, more packets will not help.
  } while (names.size < wanted && names.size > 0 && answers.length < atMost);
  return answers;
}

/** Makes one connection and reads its first line. Returns "silent" when `signal` aborts. */
async function askTcp(target: Target, signal?: AbortSignal): Promise<Answer> {
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
      closeAtOnce(socket);
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
    socket.on("end", () => end({ kind: "error", code: "closed" }));
  });
}

/**
 * Closes a connection with a reset, which leaves nothing in TIME_WAIT, either here or in the node's conntrack table. One
 * that is still being opened is given up: a reset would wait for it, and its SYN would be repeated for minutes.
 */
function closeAtOnce(socket: Socket): void {
  if (socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}

/** Above the ports at which service proxies serve health and metrics, so that a flow on n1 does not meet one. */
const firstPort = 11_000;

let lastPort = firstPort;

/**
 * Returns a local port that has not been used for a long time.
 *
 * If the system chose the port, the node might still have a conntrack entry for it from an earlier test: a datagram
 * would follow that entry, and a SYN could be invalid in the old connection. The port may
 * be in use; `askTcp` and `freshUdpSocket` then try the next one.
 */
function nextPort(): number {
  lastPort = lastPort >= 60_000 ? firstPort : lastPort + 1;
  return lastPort;
}

/** Returns a UDP socket that is bound to a port from `nextPort`. Rejects if no socket can be bound to `from`. */
async function freshUdpSocket(address: string, from: string | undefined): Promise<UdpSocket> {
  for (;;) {
    const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
    const error = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
      socket.once("error", resolve);
      socket.bind(nextPort(), from, () => resolve(undefined));
    });
    socket.removeAllListeners("error");
    if (error === undefined) return socket;
    socket.close();
    if (error.code !== "EADDRINUSE") throw error;
  }
}

/**
 * How many times `ask` sends a datagram while there is no answer. UDP clients repeat datagrams, too, because a datagram
 * or ICMP error may be lost on a busy machine. All repetitions come from the same port, so the flow keeps its endpoint
 * and a dead endpoint is not hidden.
 */
const askSendings = 3;

/**
 * Sends a datagram from a new port, repeats it up to `times` in all while there is no answer, and returns the answer.
 */
async function askUdp({ address, port, from, timeoutMs }: Target, times = 1): Promise<Answer> {
  const socket = await freshUdpSocket(address, from).catch(fromError);
  if ("kind" in socket) return socket;
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
      // A socket hook may refuse the connect immediately.
      if (error) end(fromError(error));
      else socket.send("who?");
    });
  });
}

const tryEveryMs = 20;
/** Time limit for one attempt, which also bounds the number of concurrent attempts. */
const tryMs = 5_000;

/**
 * Returns true as soon as this name answers, or false after `timeoutMs`.
 *
 * Attempts overlap: a SYN sent before the rules were installed is lost, and on a busy machine an answer may take longer
 * than the interval between attempts.
 */
export async function awaitName({ name, timeoutMs, ...target }: AwaitRequest): Promise<boolean> {
  const startMs = performance.now();
  const deadlineMs = startMs + timeoutMs;
  const served = new AbortController();
  // Each attempt adds a listener, so there is no limit.
  setMaxListeners(0, served.signal);
  while (!served.signal.aborted && performance.now() < deadlineMs) {
    void askTcp({ ...target, timeoutMs: tryMs }, served.signal).then((answer) => {
      if (answer.kind === "answer" && answer.name === name) served.abort();
    });
    // If the wait is long, as in a virtual machine, frequent attempts would slow down the very process they wait for.
    const pauseMs = Math.min(Math.max(tryEveryMs, (performance.now() - startMs) / 20), 250);
    await sleep(pauseMs, undefined, { signal: served.signal }).catch(() => undefined);
  }
  const isServed = served.signal.aborted;
  // Cancel the attempts that are still running.
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
      response.on("error", (error) => resolve({ status: 0, body: error.message }));
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

/**
 * A flow that sends every 15 ms, or less often while many answers are missing, and counts the answers. An agent keeps
 * flows open on request, to show whether an existing connection survives a rule change.
 */
export interface RunningFlow {
  /** Returns the state since the last call. */
  look(): FlowState;
  /** Stops sending and waits up to 20 s for missing answers. */
  finish(): Promise<FlowTotals>;
  end(): void;
}

const flowEveryMs = 15;

/** A client that waits for this many answers sends rarely. */
const manyUnanswered = 16;

/** Time after which the answer to a datagram counts as lost, in milliseconds. */
const lostMs = 1_000;

/**
 * Returns a function that says whether to send now. A client that is waiting for many answers sends every `slowEveryMs`;
 * otherwise, a machine too busy to answer would drop datagrams at the servers' sockets, which is not the fault of any
 * proxy.
 */
function makePace(slowEveryMs: number): (unanswered: number) => boolean {
  let lastMs = Number.NEGATIVE_INFINITY;
  return (unanswered) => {
    const nowMs = performance.now();
    if (unanswered >= manyUnanswered && nowMs - lastMs < slowEveryMs) return false;
    lastMs = nowMs;
    return true;
  };
}

/** Time limit for missing answers. Only a flow that has lost packets waits this long. */
const lateMs = 20_000;

type Open = Extract<AgentRequest, { kind: "open" }>;

/**
 * Starts a flow: one TCP connection to an echo server, or datagrams from one port.
 */
export function openFlow(request: Open): Promise<RunningFlow> {
  return request.protocol === "tcp" ? openTcp(request) : openUdp(request);
}

async function openTcp({ address, port, from, isServerSending = false }: Open): Promise<RunningFlow> {
  const localAddress = from === undefined ? {} : { localAddress: from };
  const socket = connect({ host: address, port, noDelay: true, localPort: nextPort(), ...localAddress });
  let answered = 0;
  let name: string | undefined;
  let ended: string | undefined;
  const total = { sent: 0, answered: 0 };
  // Each write has 1 KiB, so that the flow is a transfer and not a keep-alive.
  const block = Buffer.alloc(1_024, "x");
  if (isServerSending) socket.write(startSending);
  const timer = setInterval(() => {
    if (isServerSending) return;
    total.sent += block.length;
    socket.write(block);
  }, flowEveryMs);
  const stop = (reason: string): void => {
    ended ??= reason;
    clearInterval(timer);
  };
  socket.on("data", (data) => {
    total.answered += data.length;
    if (name === undefined) {
      // The server writes its line at once, so the first read contains all of it.
      const [line = ""] = String(data).split("\n");
      ({ name } = JSON.parse(line) as { name: string });
      total.answered -= Buffer.byteLength(line) + 1;
    } else answered += 1;
  });
  socket.on("error", (error) => stop(error.message));
  socket.on("close", () => stop("closed"));
  return {
    look: () => {
      const state = { answered, name, ended };
      answered = 0;
      return state;
    },
    finish: async () => {
      clearInterval(timer);
      await untilAnswered(total, () => ended !== undefined);
      return { ...total, ended };
    },
    end: () => {
      stop("ended");
      closeAtOnce(socket);
    },
  };
}

async function openUdp({ address, port, from }: Open): Promise<RunningFlow> {
  const socket = await freshUdpSocket(address, from);
  let answered = 0;
  let name: string | undefined;
  /** When the datagrams without an answer were sent, oldest first. */
  const unansweredMs: number[] = [];
  const total = { sent: 0, answered: 0 };
  socket.on("message", (data) => {
    name = (JSON.parse(String(data)) as { name: string }).name;
    answered += 1;
    total.answered += 1;
    unansweredMs.shift();
  });
  // A refused datagram does not end the flow: the next one may be answered.
  socket.on("error", () => undefined);
  // Twice in the shortest time for which a test looks for answers.
  const maySend = makePace(50);
  const timer = setInterval(() => {
    const nowMs = performance.now();
    while (unansweredMs[0] !== undefined && nowMs - unansweredMs[0] > lostMs) unansweredMs.shift();
    if (!maySend(unansweredMs.length)) return;
    unansweredMs.push(nowMs);
    total.sent += 1;
    socket.send("who?", port, address);
  }, flowEveryMs);
  return {
    look: () => {
      const state = { answered, name, ended: undefined };
      answered = 0;
      return state;
    },
    finish: async () => {
      clearInterval(timer);
      await untilAnswered(total, () => false);
      return { ...total, ended: undefined };
    },
    end: () => {
      clearInterval(timer);
      socket.close();
    },
  };
}

async function untilAnswered(
  total: { readonly sent: number; readonly answered: number },
  isEnded: () => boolean,
): Promise<void> {
  const deadlineMs = performance.now() + lateMs;
  while (total.answered < total.sent && !isEnded() && performance.now() < deadlineMs) await sleep(10);
}

/**
 * A series of new connections, which reveals moments without rules or endpoints. An agent runs a probe on request while
 * a test changes the rules.
 */
export interface RunningProbe {
  /** Stops the series, waits for the connections in progress, and returns the totals. */
  stop(): Promise<ProbeTotals>;
}

/**
 * Makes a connection, or sends a datagram from a new port, again and again without waiting for the previous one.
 */
export function startProbe(request: Extract<AgentRequest, { kind: "probe" }>): RunningProbe {
  const { protocol, everyMs = 50, timeoutMs = 5_000, sendings } = request;
  const target = { ...request, timeoutMs };
  const startMs = performance.now();
  const failures: string[] = [];
  const pending = new Set<Promise<void>>();
  let answered = 0;
  const one = async (): Promise<void> => {
    const atMs = Math.round(performance.now() - startMs);
    const answer = await (protocol === "tcp" ? askTcp(target) : askUdp(target, sendings));
    if (answer.kind === "answer") answered += 1;
    else failures.push(`after ${atMs} ms: ${answer.kind === "error" ? answer.code : answer.kind}`);
  };
  const maySend = makePace(200);
  const timer = setInterval(() => {
    if (!maySend(pending.size)) return;
    const asked = one();
    pending.add(asked);
    void asked.finally(() => pending.delete(asked));
  }, everyMs);
  return {
    stop: async () => {
      clearInterval(timer);
      await Promise.all(pending);
      return { answered, failures };
    },
  };
}
