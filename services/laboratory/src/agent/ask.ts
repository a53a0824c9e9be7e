import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { setMaxListeners } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Answer, Ask, AwaitName, HttpAnswer, Target } from "./request.ts";

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

type Packet = Omit<Target, "protocol"> & { readonly timeoutMs: number };

/** Makes one connection and reads its first line. Returns "silent" when `signal` aborts. */
export async function askTcp(target: Packet, signal?: AbortSignal): Promise<Answer> {
  for (;;) {
    const answer = await askTcpFrom(nextPort(), target, signal);
    if (answer.kind !== "error" || answer.code !== "EADDRINUSE") return answer;
  }
}

function askTcpFrom(
  localPort: number,
  { address, port, from, timeoutMs }: Packet,
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
export function closeAtOnce(socket: Socket): void {
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
 * would follow that entry, and a SYN could be invalid in the old connection. The port may be in use; `askTcp` and
 * `freshUdpSocket` then try the next one.
 */
export function nextPort(): number {
  lastPort = lastPort >= 60_000 ? firstPort : lastPort + 1;
  return lastPort;
}

/** Returns a UDP socket that is bound to a port from `nextPort`. Rejects if no socket can be bound to `from`. */
export async function freshUdpSocket(address: string, from: string | undefined): Promise<UdpSocket> {
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
export async function askUdp({ address, port, from, timeoutMs }: Packet, times = 1): Promise<Answer> {
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
export async function awaitName({ name, timeoutMs, ...target }: AwaitName): Promise<boolean> {
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

/** Sends one GET request for the path "/", on a connection of its own. */
export async function askHttp({ address, port, timeoutMs }: Omit<AwaitName, "name">): Promise<HttpAnswer> {
  const url = `http://${address.includes(":") ? `[${address}]` : address}:${port}`;
  const options = { headers: { connection: "close" }, signal: AbortSignal.timeout(timeoutMs) };
  return fetch(url, options)
    .then(async (response) => ({ status: response.status, body: await response.text() }))
    .catch((error: Error) => ({ status: 0, body: String(error.cause ?? error) }));
}

function fromError(error: NodeJS.ErrnoException): Answer {
  return error.code === "ECONNREFUSED" ? { kind: "refused" } : { kind: "error", code: error.code ?? error.message };
}
