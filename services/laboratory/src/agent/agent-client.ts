import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import type { Laboratory } from "../laboratory.ts";
import { programPath } from "../program-path.ts";
import type { Requests } from "./agent.ts";
import type { Answer, Ask, FlowState, FlowTarget, FlowTotals, ProbeTarget, ProbeTotals } from "./request.ts";

/** A flow that an agent keeps open. */
export interface OpenFlow {
  /** Who gave the first answer; undefined if there was none in time. */
  readonly name: string | undefined;
  /** Returns the state since the last look. */
  look(): Promise<FlowState>;
  /** Stops sending, waits up to 20 s for missing answers, and returns the totals. */
  finish(): Promise<FlowTotals>;
  close(): Promise<unknown>;
}

/**
 * The client of an agent, which is a process that sends and answers packets in a network namespace. The agent ends with
 * its laboratory; all methods then throw.
 */
export class AgentClient {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #count = 0;
  #ended: Error | undefined;

  private constructor(name: string, child: ChildProcess) {
    this.name = name;
    this.#child = child;
  }

  /**
   * Starts an agent in the namespace `name`, and resolves when it listens on the given ports of the given addresses.
   *
   * Errors: throws if the agent ended; the message contains its standard error.
   */
  static async start(
    laboratory: Laboratory,
    name: string,
    ports: readonly number[] = [],
    addresses: readonly string[] = [],
  ): Promise<AgentClient> {
    const program = programPath("agent/agent.ts");
    const child = laboratory.start(name, [process.execPath, program, name, ports.join(","), ...addresses]);
    const agent = new AgentClient(name, child);
    await agent.#listen();
    return agent;
  }

  /** Process id of the command that entered the namespace; the agent is one of its descendants. */
  get processId(): number | undefined {
    return this.#child.pid;
  }

  /** Makes one connection, or sends one datagram. */
  async askOnce(target: Omit<Ask, "atOnce" | "atMost" | "wanted">): Promise<Answer> {
    const [answer] = await this.call("ask", { ...target, atOnce: 1, atMost: 1, wanted: 1 });
    return answer ?? { kind: "silent" };
  }

  async openFlow(target: FlowTarget): Promise<OpenFlow> {
    const { id, name } = await this.call("openFlow", target);
    return {
      name,
      look: () => this.call("look", id),
      finish: () => this.call("finish", id),
      close: () => this.call("close", id),
    };
  }

  /** Starts a probe, and returns a function that stops it. */
  async startProbe(target: ProbeTarget): Promise<() => Promise<ProbeTotals>> {
    const id = await this.call("startProbe", target);
    return () => this.call("stopProbe", id);
  }

  /** Sends a request and returns the reply. */
  async call<K extends keyof Requests>(
    kind: K,
    argument: Parameters<Requests[K]>[0],
  ): Promise<Awaited<ReturnType<Requests[K]>>> {
    if (this.#ended !== undefined) throw this.#ended;
    this.#count += 1;
    const reply = Promise.withResolvers<unknown>();
    this.#waiting.set(this.#count, reply);
    this.#child.stdin?.write(`${JSON.stringify([this.#count, kind, argument])}\n`);
    return (await reply.promise) as Awaited<ReturnType<Requests[K]>>;
  }

  #listen(): Promise<void> {
    const { stdin, stdout, stderr } = this.#child;
    if (stdin === null || stdout === null || stderr === null) throw new Error(`agent ${this.name} has no pipes`);
    let errors = "";
    stderr.on("data", (data) => {
      errors += String(data);
    });
    stdin.on("error", () => undefined);
    return new Promise((resolve, reject) => {
      createInterface({ input: stdout }).on("line", (line) => {
        if (line === "ready") return resolve();
        const [number, value]: [number, unknown] = JSON.parse(line);
        this.#waiting.get(number)?.resolve(value);
        this.#waiting.delete(number);
      });
      this.#child.once("close", () => {
        this.#ended = new Error(`agent ${this.name} ended: ${errors.trim()}`);
        reject(this.#ended);
        for (const waiting of this.#waiting.values()) waiting.reject(this.#ended);
      });
    });
  }
}
