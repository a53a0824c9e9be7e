import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Laboratory } from "../laboratory.ts";
import type { Answer, FlowState, FlowTotals, HttpAnswer, ProbeTotals, Question } from "./question.ts";

type ReplyOf<K extends Question["kind"]> = {
  ask: readonly Answer[];
  await: boolean;
  http: HttpAnswer;
  open: boolean;
  look: FlowState;
  finish: FlowTotals;
  end: boolean;
  probe: boolean;
  "stop probe": ProbeTotals;
}[K];

/** The test's end of an agent in a namespace. */
export class AgentClient {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #count = 0;

  private constructor(name: string, child: ChildProcess) {
    this.name = name;
    this.#child = child;
  }

  /** Starts an agent that serves on these addresses, and resolves when it does. Errors: its own words if it ends. */
  static async start(
    laboratory: Laboratory,
    name: string,
    ports: readonly number[],
    addresses: readonly string[],
  ): Promise<AgentClient> {
    const program = fileURLToPath(new URL("./agent.ts", import.meta.url));
    const child = laboratory.start(name, [process.execPath, program, name, ports.join(","), ...addresses]);
    const agent = new AgentClient(name, child);
    await agent.#listen();
    return agent;
  }

  /** Errors: the agent has ended. */
  async send<K extends Question["kind"]>(question: Extract<Question, { kind: K }>): Promise<ReplyOf<K>> {
    this.#count += 1;
    const number = this.#count;
    const reply = new Promise<unknown>((resolve, reject) => this.#waiting.set(number, { resolve, reject }));
    this.#child.stdin?.write(`${JSON.stringify([number, question])}\n`);
    return (await reply) as ReplyOf<K>;
  }

  #listen(): Promise<void> {
    const { stdin, stdout, stderr } = this.#child;
    if (stdin === null || stdout === null || stderr === null) throw new Error(`agent ${this.name} has no pipes`);
    let said = "";
    stderr.on("data", (data) => {
      said += String(data);
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
        const error = new Error(`agent ${this.name} ended: ${said.trim()}`);
        reject(error);
        for (const waiting of this.#waiting.values()) waiting.reject(error);
      });
    });
  }
}
