import { Backoff } from "@kpng/process/backoff.ts";
import { type Clock, realClock } from "@kpng/process/clock.ts";
import type { Log } from "@kpng/process/log.ts";
import { describeEnd, type ProgramEnd, runProgram, toolEnvironment } from "../exec/run-program.ts";
import { type FlowEvent, parseFlowEvent } from "./flow-event.ts";

/** Longest time limit that a timer of Node.js can have, in milliseconds: 24 days. */
const timeoutMs = 2 ** 31 - 1;

/** Buffer for events that are not read yet, in bytes. The kernel drops events beyond it. */
const bufferBytes = 8 * 1024 * 1024;

/** Options of {@link FlowWatch}. */
export interface FlowWatchOptions {
  readonly log: Log;
  readonly onEvent: (event: FlowEvent) => void;
  /** Called each time that the program has ended without being asked to: events were missed. */
  readonly onEnd: () => void;
  /** Name or path of conntrack-tools' program. Default "conntrack". */
  readonly program?: string | undefined;
  readonly clock?: Clock | undefined;
}

/**
 * Follows the begin and end of all flows whose destination is translated (DNAT), by `conntrack -E`, which it starts
 * again with backoff when it ends. `ServiceTraffic` creates and runs it. Separate, because it knows no Services.
 *
 * *Cost:* some microseconds for each event, in this process and in the program.
 */
export class FlowWatch {
  readonly #options: FlowWatchOptions;

  constructor(options: FlowWatchOptions) {
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log, onEnd, program = "conntrack", clock = realClock } = this.#options;
    const backoff = new Backoff({ minMs: 1_000, maxMs: 60_000 });
    const args = ["-E", "-e", "NEW,DESTROY", "--dst-nat", "--buffer-size", String(bufferBytes)];
    while (!signal.aborted) {
      const startMs = clock.nowMs();
      const end = await this.#follow([program, ...args], signal);
      if (signal.aborted) return;
      onEnd();
      if (clock.nowMs() - startMs > 60_000) backoff.reset();
      const waitMs = backoff.nextMs();
      const stderr = "stderr" in end ? end.stderr.trim() : "";
      log.error("traffic of Services is not counted: conntrack ended, starting it again", {
        reason: `${describeEnd(end, timeoutMs)}${stderr === "" ? "" : `: ${stderr}`}`,
        waitMs: Math.round(waitMs),
      });
      await clock.wait(waitMs, signal);
    }
  }

  #follow(command: readonly string[], signal: AbortSignal): Promise<ProgramEnd> {
    let rest = "";
    const stdout = (text: string): void => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const event = parseFlowEvent(line);
        if (event !== undefined) this.#options.onEvent(event);
      }
    };
    const maxOutputBytes = Number.POSITIVE_INFINITY;
    return runProgram(command, { timeoutMs, stdout, signal, env: toolEnvironment(), maxOutputBytes });
  }
}
