import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";

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

  /** Asks it to end, or kills it, and resolves when it has ended. */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // Its outputs close when the program itself is gone, later than the command that brought it into the namespace.
    const closed = once(child, "close");
    // The command that brought it there stays its parent and would be killed alone.
    if (signal === "SIGKILL") killChildren(child.pid ?? 0);
    else child.kill(signal);
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

function killChildren(parent: number): void {
  const children = readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").split(" ").filter(Boolean);
  for (const child of children) process.kill(Number(child), "SIGKILL");
}
