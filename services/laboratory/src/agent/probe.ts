import { askTcp, askUdp } from "./ask.ts";
import type { ProbeTotals, Question } from "./question.ts";

/** New connections, one after the other, that show a moment in which there was nobody to serve them. */
export interface RunningProbe {
  /** Starts no more, waits for those under way, and tells. */
  stop(): Promise<ProbeTotals>;
}

const everyMs = 50;
/** Longer than it takes TCP to send a lost SYN a second and a third time: what fails was refused or never served. */
const timeoutMs = 5_000;

/** Makes a connection, or sends a datagram from a new port, every 50 ms; does not wait for one before the next. */
export function startProbe(question: Extract<Question, { kind: "probe" }>): RunningProbe {
  const { protocol } = question;
  const target = { ...question, timeoutMs };
  const startMs = performance.now();
  const failures: string[] = [];
  const underWay = new Set<Promise<void>>();
  let answered = 0;
  const one = async (): Promise<void> => {
    const atMs = Math.round(performance.now() - startMs);
    const answer = await (protocol === "tcp" ? askTcp(target) : askUdp(target));
    if (answer.kind === "answer") answered += 1;
    else failures.push(`after ${atMs} ms: ${answer.kind === "error" ? answer.code : answer.kind}`);
  };
  const timer = setInterval(() => {
    const asked = one();
    underWay.add(asked);
    void asked.finally(() => underWay.delete(asked));
  }, everyMs);
  return {
    stop: async () => {
      clearInterval(timer);
      await Promise.all(underWay);
      return { answered, failures };
    },
  };
}
