import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Laboratory } from "./laboratory.ts";

/** Program in a namespace, by default that of node n1, which can be stopped and restarted. */
export class NodeProcess {
  readonly #laboratory: Laboratory;
  readonly #namespace: string;
  #child: ChildProcess | undefined;
  #ended: Promise<string> = new Promise(() => undefined);
  #output = "";

  constructor(laboratory: Laboratory, namespace = "n1") {
    this.#laboratory = laboratory;
    this.#namespace = namespace;
  }

  start(command: readonly string[], environment: Readonly<Record<string, string>> = {}): ChildProcess {
    this.#output = "";
    const child = this.#laboratory.start(this.#namespace, command, environment);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        // Keeps only the end of the output, because a proxy that runs for minutes logs a lot.
        this.#output = (this.#output + text).slice(-200_000);
      });
    }
    this.#child = child;
    this.#ended = once(child, "exit").then(([exitCode, signal]) => signal ?? `exit status ${exitCode}`);
    return child;
  }

  /** Resolves when the program that was started last has ended. *Shape:* `SIGKILL`, `exit status 1`. */
  get ended(): Promise<string> {
    return this.#ended;
  }

  /**
   * Stops the program with a signal; resolves when it and what it has started have ended. SIGKILL kills all of them, as the
   * end of a container does; so does a stop of a program that has ended by itself.
   *
   * Errors: one of them still runs half a minute after SIGTERM; those that do are then killed.
   */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child?.pid === undefined) return;
    const processes = descendants(child.pid);
    if (isRunning(child) && signal === "SIGTERM") {
      // The program gets SIGTERM when the command that entered the namespace has ended.
      child.kill();
      const deadlineMs = performance.now() + stopMs;
      while (processes.some(isAlive) && performance.now() < deadlineMs) await sleep(10);
    }
    const left = processes.filter(isAlive);
    // All of them are in the process group of the command that entered the namespace, unless they have left it.
    for (const id of [-child.pid, ...left]) killIfRunning(id);
    while (processes.some(isAlive)) await sleep(10);
    if (signal === "SIGTERM" && left.length > 0) {
      throw new Error(`the program did not end within ${stopMs} ms after SIGTERM`);
    }
  }

  /** Returns the end of its output since the start. */
  log(lines = 25): string {
    const last = this.#output.trimEnd().split("\n").slice(-lines);
    return last.map((line) => (line.length <= 500 ? line : `${line.slice(0, 500)}…`)).join("\n");
  }
}

/** Time in which a program ends after SIGTERM, in milliseconds. */
const stopMs = 30_000;

function killIfRunning(id: number): void {
  try {
    process.kill(id, "SIGKILL");
  } catch {
    // It has ended.
  }
}

/** True unless a process has ended; process 1 of a laboratory does not collect those that have. */
function isAlive(id: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${id}/status`, "utf8"));
  } catch {
    return false;
  }
}

function isRunning({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode === null && signalCode === null;
}

/** Returns the children of all threads of a process, because any thread may start one; none if it has ended. */
export function childrenOf(pid: number): readonly number[] {
  try {
    const files = readdirSync(`/proc/${pid}/task`).map((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, "utf8"),
    );
    return files.flatMap((text) => text.split(" ").filter(Boolean)).map(Number);
  } catch {
    return [];
  }
}

/** Returns a process and those that it started, directly or not. */
export function descendants(pid: number): readonly number[] {
  return [pid, ...childrenOf(pid).flatMap(descendants)];
}
