import { connect } from "node:net";
import { freshUdpSocket, nextPort } from "./ask.ts";
import type { FlowState, Question } from "./question.ts";

/** Something that sends every few milliseconds and counts what comes back. */
export interface RunningFlow {
  look(): FlowState;
  end(): void;
}

const everyMs = 15;

type Open = Extract<Question, { kind: "open" }>;

/** Starts a flow: one TCP connection that echoes, or datagrams from one port. */
export function openFlow(question: Open): Promise<RunningFlow> {
  return question.protocol === "tcp" ? openTcp(question) : openUdp(question);
}

async function openTcp({ address, port, from }: Open): Promise<RunningFlow> {
  const localAddress = from === undefined ? {} : { localAddress: from };
  const socket = connect({ host: address, port, noDelay: true, localPort: nextPort(), ...localAddress });
  let answered = 0;
  let name: string | undefined;
  let ended: string | undefined;
  // A block of 1 KiB each time: a transfer, not a keep-alive.
  const block = Buffer.alloc(1_024, "x");
  const timer = setInterval(() => socket.write(block), everyMs);
  const stop = (reason: string): void => {
    ended ??= reason;
    clearInterval(timer);
  };
  socket.on("data", (data) => {
    if (name === undefined) name = (JSON.parse(String(data).split("\n")[0] ?? "") as { name: string }).name;
    else answered += 1;
  });
  socket.on("error", (error) => stop(error.message));
  socket.on("close", () => stop("closed"));
  return {
    look: () => {
      const state = { answered, name, ended };
      answered = 0;
      return state;
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
  socket.on("message", (data) => {
    name = (JSON.parse(String(data)) as { name: string }).name;
    answered += 1;
  });
  // Refused datagrams do not end a flow: the next one may be answered.
  socket.on("error", () => undefined);
  const timer = setInterval(() => socket.send("who?", port, address), everyMs);
  return {
    look: () => {
      const state = { answered, name, ended: undefined };
      answered = 0;
      return state;
    },
    end: () => {
      clearInterval(timer);
      socket.close();
    },
  };
}
