import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { childrenOf } from "../../scale/proc.ts";

/** Program on n1 that can be stopped and restarted. */
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
        // Keeps only the end of the output, because a proxy that runs for minutes logs a lot.
        this.#output = (this.#output + text).slice(-200_000);
      });
    }
    this.#child = child;
  }

  /** Stops the program with a signal; resolves when it has exited. */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // The outputs close after the exit of the program itself, later than the command that entered the namespace.
    const closed = once(child, "close");
    // A signal to the command that entered the namespace would not kill the program, its child.
    if (signal === "SIGKILL") for (const id of childrenOf(child.pid ?? 0)) process.kill(id, "SIGKILL");
    else child.kill(signal);
    await closed;
  }

  log(lines = 25): string {
    return this.#output.trimEnd().split("\n").slice(-lines).join("\n");
  }

  /** Stored end of its output. */
  get output(): string {
    return this.#output;
  }
}
