import { setTimeout as sleep } from "node:timers/promises";
import type { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { Answer } from "@kpng/laboratory/agent/request.ts";
import type { Host } from "@kpng/laboratory/one-node.ts";

/**
 * The outcome of one packet of the demo's client, and when it was sent, by `performance.now()`. The demo judges by
 * these outcomes whether a change took effect, and when.
 */
export interface Observation {
  readonly sentAtMs: number;
  readonly answer: Answer;
}

/** Time limit for a change to take effect; a busy machine needs some seconds. */
const limitMs = 20_000;

/**
 * Sends a packet to an address every 5 ms, TCP and UDP in turn, until `find` returns a result from the observations so
 * far, which are in the order of sending.
 *
 * It does not wait for one answer before it sends the next packet: a lost packet would delay the following ones.
 * Errors: no result after 20 s, with the last answer; the client ended.
 */
export async function observe<T>(
  client: AgentClient,
  address: string,
  find: (observations: readonly Observation[]) => T | undefined,
): Promise<T> {
  const start = performance.now();
  const observations: Observation[] = [];
  let failure: unknown;
  for (let index = 0; ; index += 1) {
    const sentAtMs = performance.now();
    const port = index % 2 === 0 ? ({ protocol: "udp", port: 53 } as const) : ({ protocol: "tcp", port: 80 } as const);
    client.askOnce({ ...port, address, timeoutMs: 500 }).then(
      (answer) => {
        observations[index] = { sentAtMs, answer };
      },
      (error: unknown) => {
        failure = error;
      },
    );
    await sleep(5);
    if (failure !== undefined) throw failure;
    // Packets that are not answered yet have no value.
    const known = Object.values(observations);
    const result = find(known);
    if (result !== undefined) return result;
    if (performance.now() - start > limitMs) {
      const last = JSON.stringify(known.at(-1)?.answer ?? "none");
      throw new Error(`${address}: no expected answer within ${limitMs} ms; last answer: ${last}`);
    }
  }
}

/** Sends packets to an address until one of `hosts` answers, and returns that observation. */
export function firstAnswer(client: AgentClient, address: string, hosts: readonly Host[]): Promise<Observation> {
  return observe(client, address, (known) => known.find(({ answer }) => hosts.some((host) => isFrom(answer, host))));
}

/** True if this host gave the answer. */
export function isFrom(answer: Answer, host: Host): boolean {
  return answer.kind === "answer" && answer.name === host.name;
}

/** Formats the time from `sinceMs` to the sending of an observation's packet: "226 ms". */
export function elapsed(sinceMs: number, { sentAtMs }: Observation): string {
  return `${Math.round(sentAtMs - sinceMs)} ms`;
}
