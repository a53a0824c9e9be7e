import type { ChildProcess } from "node:child_process";

/** Functions of a child process that its parent can call, by name; each takes one argument. */
export type Handlers = Readonly<Record<string, (argument: never) => unknown>>;

interface Call {
  readonly id: number;
  readonly name: string;
  readonly argument: unknown;
}

type Answer = { readonly id: number; readonly value: unknown } | { readonly id: number; readonly error: string };

/** Limit for a process to exit. */
const stopMs = 10_000;

/** Answers calls of the parent process until the parent exits. */
export function answerCalls(handlers: Handlers): void {
  process.on("message", async (message) => {
    const { id, name, argument } = message as Call;
    let answer: Answer;
    try {
      const handler = handlers[name] as ((argument: unknown) => unknown) | undefined;
      if (handler === undefined) throw new Error(`unknown call: ${name}`);
      answer = { id, value: await handler(argument) };
    } catch (error) {
      answer = { id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
    }
    if (process.connected) process.send?.(answer);
  });
  process.on("disconnect", () => process.exit(0));
}

/** Calls the functions that a child process offers with `answerCalls`. */
export class Caller<H extends Handlers> {
  readonly child: ChildProcess;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #lastId = 0;
  #end: string | undefined;

  constructor(child: ChildProcess, name: string) {
    this.child = child;
    child.on("message", (message) => {
      const answer = message as Answer;
      const waiting = this.#waiting.get(answer.id);
      this.#waiting.delete(answer.id);
      if ("error" in answer) waiting?.reject(new Error(`${name}: ${answer.error}`));
      else waiting?.resolve(answer.value);
    });
    const end = (reason: string): void => {
      this.#end ??= `${name} ${reason}`;
      for (const waiting of this.#waiting.values()) waiting.reject(new Error(this.#end));
      this.#waiting.clear();
    };
    child.once("error", (error) => end(`cannot run: ${error.message}`));
    child.once("exit", (code, signal) => end(`ended with ${signal ?? `exit code ${code}`}`));
  }

  async call<K extends keyof H & string>(name: K, argument: Parameters<H[K]>[0]): Promise<Awaited<ReturnType<H[K]>>> {
    if (this.#end !== undefined) throw new Error(this.#end);
    const id = ++this.#lastId;
    const waiting = Promise.withResolvers<unknown>();
    this.#waiting.set(id, waiting);
    this.child.send({ id, name, argument } satisfies Call);
    return (await waiting.promise) as Awaited<ReturnType<H[K]>>;
  }

  /** Disconnects from the process, which then exits, and waits for the exit; kills it after a time limit. */
  async stop(): Promise<void> {
    if (this.#end !== undefined) return;
    const gone = new Promise((resolve) => this.child.once("exit", resolve));
    const timeout = setTimeout(() => this.child.kill("SIGKILL"), stopMs);
    if (this.child.connected) this.child.disconnect();
    await gone;
    clearTimeout(timeout);
  }
}
