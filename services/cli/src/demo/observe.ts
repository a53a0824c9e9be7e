import { setTimeout as sleep } from "node:timers/promises";
import type { Host } from "@kpng/laboratory/one-node.ts";
import type { Client } from "./packets.ts";
import type { Question, Reply } from "./question.ts";

/** A reply and when its question left, by `performance.now()`. */
export interface Observation {
  readonly sentAtMs: number;
  readonly reply: Reply;
}

/** How long a change may take until the demo gives up on it; a machine with much else to do takes some seconds. */
const limitMs = 20_000;

/**
 * Asks an address, TCP and UDP in turn, every 5 ms, until the replies that have come are enough.
 *
 * Does not wait for one reply before it asks again: a packet that nobody answers would hide the next ones. Returns what
 * has come, in the order in which it was asked. Errors: after 20 s, with the last reply.
 */
export async function observe(
  client: Client,
  address: string,
  isEnough: (observations: readonly Observation[]) => boolean,
): Promise<readonly Observation[]> {
  const start = performance.now();
  const observations: (Observation | undefined)[] = [];
  for (let index = 0; ; index += 1) {
    const sentAtMs = performance.now();
    void client.ask(question(address, index)).then((reply) => {
      observations[index] = { sentAtMs, reply };
    });
    await sleep(5);
    const known = observations.filter((observation) => observation !== undefined);
    if (isEnough(known)) return known;
    if (performance.now() - start > limitMs) {
      const last = JSON.stringify(known.at(-1)?.reply ?? "none");
      throw new Error(`${address} is not answered as expected within ${limitMs} ms; last reply: ${last}`);
    }
  }
}

/** Asks an address until one of `hosts` answers, and returns that observation. */
export async function firstAnswer(client: Client, address: string, hosts: readonly Host[]): Promise<Observation> {
  const isAnswer = (observation: Observation) => hosts.some((host) => isFrom(observation.reply, host));
  const first = (await observe(client, address, (known) => known.some(isAnswer))).find(isAnswer);
  if (first === undefined) throw new Error(`${address}: no answer among the observations`);
  return first;
}

export function isFrom(reply: Reply, host: Host): boolean {
  return reply.kind === "answer" && reply.name === host.name;
}

/** The time from a moment to when an observation's packet left, for a person. */
export function elapsed(sinceMs: number, observation: Observation): string {
  return `${Math.round(observation.sentAtMs - sinceMs)} ms`;
}

function question(address: string, index: number): Question {
  const timeoutMs = 500;
  return index % 2 === 0
    ? { protocol: "udp", address, port: 53, timeoutMs }
    : { protocol: "tcp", address, port: 80, timeoutMs };
}
