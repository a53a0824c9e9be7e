import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import type { Laboratory } from "../laboratory.ts";
import { programPath } from "../program-path.ts";
import type { AgentRequest, Answer, Protocol, ReplyTo } from "./request.ts";

/**
 * The client of an agent, which is a process that sends and answers packets in a network namespace. The agent ends with
 * its laboratory.
 */
export class AgentClient {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
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

  /** Sends a request and returns the reply. Errors: throws if the agent has ended. */
  async send<K extends AgentRequest["kind"]>(request: Extract<AgentRequest, { kind: K }>): Promise<ReplyTo<K>> {
    if (this.#ended !== undefined) throw this.#ended;
    this.#count += 1;
    const number = this.#count;
    const reply = new Promise<unknown>((resolve, reject) => this.#waiting.set(number, { resolve, reject }));
    this.#child.stdin?.write(`${JSON.stringify([number, request])}\n`);
    return (await reply) as ReplyTo<K>;
  }

  /** Makes one connection, or sends one datagram. Errors: throws if the agent has ended. */
  async askOnce(target: {
    readonly protocol: Protocol;
    readonly address: string;
    readonly port: number;
    readonly timeoutMs: number;
  }): Promise<Answer> {
    const [answer] = await this.send({ kind: "ask", ...target, atOnce: 1, atMost: 1, wanted: 1 });
    return answer ?? { kind: "silent" };
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
