import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { NodeAnswer, NodeRequest } from "./node-main.ts";

const program = fileURLToPath(new URL("./node-main.ts", import.meta.url));

/** Returns a folder whose programs the backend runs instead of the tools of the same name. */
export function toolFolder({ folder }: Laboratory): string {
  return join(folder, "tools");
}

/** The backend on n1, as a process that applies states on request; `node-main.ts` is the other end. */
export class NodeUnderTest {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #closed: Promise<unknown>;
  #said = "";

  private constructor(child: ChildProcess, lines: Interface) {
    this.#child = child;
    this.#lines = lines[Symbol.asyncIterator]();
    this.#closed = once(child, "close");
    child.stderr?.on("data", (data) => (this.#said = (this.#said + String(data)).slice(-4_000)));
  }

  /** Starts the process in the namespace of n1; resolves when it answers. */
  static async start({ laboratory }: TwoNodes): Promise<NodeUnderTest> {
    const command = ["sh", "-c", 'PATH="$0:$PATH" exec "$@"', toolFolder(laboratory), process.execPath, program];
    const child = laboratory.start("n1", command);
    if (child.stdout === null) throw new Error("no pipe");
    const node = new NodeUnderTest(child, createInterface({ input: child.stdout }));
    await node.#next();
    return node;
  }

  /** Sends a request. Errors: the request failed, or the process has ended. */
  async ask(request: NodeRequest): Promise<NodeAnswer> {
    this.#child.stdin?.write(`${JSON.stringify(request)}\n`);
    const answer = JSON.parse(await this.#next()) as NodeAnswer;
    if (answer.error !== "") throw new Error(answer.error);
    return answer;
  }

  async #next(): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done !== true) return value;
    // Standard error, which has the reason, may end later than standard output.
    await this.#closed;
    throw new Error(`the backend ended with ${this.#child.signalCode ?? this.#child.exitCode}: ${this.#said}`);
  }
}
