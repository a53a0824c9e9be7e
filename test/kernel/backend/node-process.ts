import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { Laboratory } from "../../../services/cli/src/demo/namespaces.ts";

/** A program that runs on n1 and can be ended and started again. */
export class NodeProcess {
  readonly #laboratory: Laboratory;
  #child: ChildProcess | undefined;
  #output = "";

  constructor(laboratory: Laboratory) {
    this.#laboratory = laboratory;
  }

  start(command: readonly string[]): void {
    const child = this.#laboratory.start("n1", command);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        // The end says what went wrong; a proxy that runs for minutes says a lot before.
        this.#output = (this.#output + text).slice(-200_000);
      });
    }
    this.#child = child;
  }

  /** Asks it to end and resolves when it has. */
  async stop(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // Its outputs close when the program itself is gone, later than the command that brought it into the namespace.
    const closed = once(child, "close");
    child.kill("SIGTERM");
    await closed;
  }

  log(lines = 25): string {
    return this.#output.trimEnd().split("\n").slice(-lines).join("\n");
  }

  /** All that is kept of its output. */
  get output(): string {
    return this.#output;
  }
}
