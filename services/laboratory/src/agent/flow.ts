import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { freshUdpSocket, nextPort } from "./ask.ts";
import type { AgentRequest, FlowState, FlowTotals } from "./request.ts";
import { startSending } from "./serve.ts";

/**
 * A flow that sends every 15 ms and counts the answers. An agent keeps flows open on request, to show whether an
 * existing connection survives a change of the rules.
 */
export interface RunningFlow {
  /** State since the last call. */
  look(): FlowState;
  /** Stops sending and waits up to 5 s for missing answers. */
  finish(): Promise<FlowTotals>;
  end(): void;
}

const everyMs = 15;
/** Time limit for missing answers; only a flow that has lost packets waits for so long. */
const lateMs = 5_000;

type Open = Extract<AgentRequest, { kind: "open" }>;

/**
 * Starts a flow: one TCP connection to an echo server, or datagrams from one port. The agent (`agent.ts`) calls it for
 * the request "open". Separate from `probe.ts`, which opens a new connection each time.
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
  // 1 KiB each time, so that the flow is a transfer and not a keep-alive.
  const block = Buffer.alloc(1_024, "x");
  if (isServerSending) socket.write(startSending);
  const timer = setInterval(() => {
    if (isServerSending) return;
    total.sent += block.length;
    socket.write(block);
  }, everyMs);
  const stop = (reason: string): void => {
    ended ??= reason;
    clearInterval(timer);
  };
  socket.on("data", (data) => {
    total.answered += data.length;
    if (name === undefined) {
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
      socket.resetAndDestroy();
    },
  };
}

async function openUdp({ address, port, from }: Open): Promise<RunningFlow> {
  const socket = await freshUdpSocket(address, from);
  let answered = 0;
  let name: string | undefined;
  const total = { sent: 0, answered: 0 };
  socket.on("message", (data) => {
    name = (JSON.parse(String(data)) as { name: string }).name;
    answered += 1;
    total.answered += 1;
  });
  // A refused datagram does not end the flow: the next one may be answered.
  socket.on("error", () => undefined);
  const timer = setInterval(() => {
    total.sent += 1;
    socket.send("who?", port, address);
  }, everyMs);
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
