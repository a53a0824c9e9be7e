import { askTcp, askUdp } from "./ask.ts";
import type { AgentRequest, ProbeTotals } from "./request.ts";

/**
 * A series of new connections, which reveals moments without rules or endpoints. An agent runs one on request while a
 * test changes the rules.
 */
export interface RunningProbe {
  /** Stops the series, waits for the connections in progress, and returns the totals. */
  stop(): Promise<ProbeTotals>;
}

/**
 * Makes a connection, or sends a datagram from a new port, again and again without waiting for the previous one.
 * The agent (`agent.ts`) calls it for the request "probe". Separate from `flow.ts`, which keeps one connection.
 */
export function startProbe(request: Extract<AgentRequest, { kind: "probe" }>): RunningProbe {
  const { protocol, everyMs = 50, timeoutMs = 5_000 } = request;
  const target = { ...request, timeoutMs };
  const startMs = performance.now();
  const failures: string[] = [];
  const pending = new Set<Promise<void>>();
  let answered = 0;
  const one = async (): Promise<void> => {
    const atMs = Math.round(performance.now() - startMs);
    const answer = await (protocol === "tcp" ? askTcp(target) : askUdp(target));
    if (answer.kind === "answer") answered += 1;
    else failures.push(`after ${atMs} ms: ${answer.kind === "error" ? answer.code : answer.kind}`);
  };
  const timer = setInterval(() => {
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
