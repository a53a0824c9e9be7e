import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { askTcp, askUdp, closeAtOnce, freshUdpSocket, nextPort } from "./ask.ts";
import type { FlowState, FlowTarget, FlowTotals, ProbeTarget, ProbeTotals } from "./request.ts";

const flowEveryMs = 15;

/** Time limit for missing answers. Only a flow that has lost packets waits this long. */
const lateMs = 20_000;

/**
 * A flow that sends every 15 ms, or less often while many answers are missing, and counts the answers. An agent keeps
 * flows open on request, to show whether an existing connection survives a rule change.
 */
export class Flow {
  /** Who answered last. */
  name: string | undefined;
  #sent = 0;
  #answered = 0;
  /** Answers since the last look. */
  #recent = 0;
  #ended: string | undefined;
  readonly #timer: NodeJS.Timeout;
  readonly #close: () => void;

  /** `send` returns the amount that it has sent. */
  constructor(send: () => number, close: () => void) {
    this.#close = close;
    this.#timer = setInterval(() => {
      this.#sent += send();
    }, flowEveryMs);
  }

  /** Notes an answer. */
  received(amount: number): void {
    this.#answered += amount;
    this.#recent += 1;
  }

  /** Notes that there will be no more answers. */
  end(reason: string): void {
    this.#ended ??= reason;
    clearInterval(this.#timer);
  }

  get isOpen(): boolean {
    return this.#ended === undefined;
  }

  /** Returns the state since the last call. */
  look(): FlowState {
    const state = { answered: this.#recent, name: this.name, ended: this.#ended };
    this.#recent = 0;
    return state;
  }

  /** Stops sending and waits up to 20 s for missing answers. */
  async finish(): Promise<FlowTotals> {
    clearInterval(this.#timer);
    const deadlineMs = performance.now() + lateMs;
    while (this.#answered < this.#sent && this.isOpen && performance.now() < deadlineMs) await sleep(10);
    return { sent: this.#sent, answered: this.#answered, ended: this.#ended };
  }

  close(): void {
    this.end("ended");
    this.#close();
  }
}

/** Starts a flow; resolves when it has its first answer, has ended, or has waited for `answerMs`. */
export async function openFlow(target: FlowTarget): Promise<Flow> {
  const deadlineMs = performance.now() + (target.answerMs ?? 0);
  const flow = target.protocol === "tcp" ? openTcp(target) : await openUdp(target);
  while (flow.name === undefined && flow.isOpen && performance.now() < deadlineMs) await sleep(5);
  return flow;
}

function openTcp({ address, port, from }: FlowTarget): Flow {
  const localAddress = from === undefined ? {} : { localAddress: from };
  const socket = connect({ host: address, port, noDelay: true, localPort: nextPort(), ...localAddress });
  // Each write has 1 KiB, so that the flow is a transfer and not a keep-alive.
  const block = Buffer.alloc(1_024, "x");
  const send = (): number => {
    socket.write(block);
    return block.length;
  };
  const flow = new Flow(send, () => closeAtOnce(socket));
  // The server writes its line at once, so the first read contains all of it.
  socket.once("data", (data) => {
    const [line = ""] = String(data).split("\n");
    ({ name: flow.name } = JSON.parse(line) as { name: string });
    const echoed = data.length - Buffer.byteLength(line) - 1;
    if (echoed > 0) flow.received(echoed);
    socket.on("data", ({ length }) => flow.received(length));
  });
  socket.on("error", ({ message }) => flow.end(message));
  socket.on("close", () => flow.end("closed"));
  return flow;
}

/** Time after which the answer to a datagram counts as lost, in milliseconds. */
const lostMs = 1_000;

async function openUdp({ address, port, from }: FlowTarget): Promise<Flow> {
  const socket = await freshUdpSocket(address, from);
  /** When the datagrams without an answer were sent, oldest first. */
  const unansweredMs: number[] = [];
  // Twice in the shortest time for which a test looks for answers.
  const maySend = makePace(50);
  const send = (): number => {
    const nowMs = performance.now();
    while (unansweredMs[0] !== undefined && nowMs - unansweredMs[0] > lostMs) unansweredMs.shift();
    if (!maySend(unansweredMs.length)) return 0;
    unansweredMs.push(nowMs);
    socket.send("who?", port, address);
    return 1;
  };
  const flow = new Flow(send, () => socket.close());
  socket.on("message", (data) => {
    ({ name: flow.name } = JSON.parse(String(data)) as { name: string });
    flow.received(1);
    unansweredMs.shift();
  });
  // A refused datagram does not end the flow: the next one may be answered.
  socket.on("error", () => undefined);
  return flow;
}

/** A client that waits for this many answers sends rarely. */
const manyUnanswered = 16;

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

/**
 * Makes a connection, or sends a datagram from a new port, again and again without waiting for the previous one, which
 * reveals moments without rules or endpoints. Returns a function that stops it, waits for the attempts in progress, and
 * returns the totals.
 */
export function startProbe(probe: ProbeTarget): () => Promise<ProbeTotals> {
  const { protocol, everyMs = 50, timeoutMs = 5_000, sendings } = probe;
  const target = { ...probe, timeoutMs };
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
  return async () => {
    clearInterval(timer);
    await Promise.all(pending);
    return { answered, failures };
  };
}
