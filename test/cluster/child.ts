import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, readFileSync } from "node:fs";
import { isExecutable } from "./executable.ts";

const setpriv = "/usr/bin/setpriv";

/**
 * A program that runs for a test and can be stopped, killed and started again with the same arguments.
 *
 * It dies with the process that started it, even if that one is killed: the kernel sends it SIGKILL (PR_SET_PDEATHSIG,
 * set by util-linux' setpriv where that is installed). What it prints goes to a file.
 */
export class Child {
  readonly name: string;
  readonly #path: string;
  readonly #args: readonly string[];
  readonly #logPath: string;
  #process: ChildProcess | undefined;

  constructor(name: string, path: string, args: readonly string[], logPath: string) {
    this.name = name;
    this.#path = path;
    this.#args = args;
    this.#logPath = logPath;
  }

  start(): void {
    if (this.isRunning) return;
    const output = openSync(this.#logPath, "a");
    const [command, args] = isExecutable(setpriv)
      ? [setpriv, ["--pdeathsig", "KILL", this.#path, ...this.#args]]
      : [this.#path, this.#args];
    this.#process = spawn(command, args, { stdio: ["ignore", output, output] });
  }

  get isRunning(): boolean {
    return this.#process !== undefined && this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Ends it in its own way; resolves when it is gone, which it is after ten seconds at the latest. */
  async stop(): Promise<void> {
    const timer = setTimeout(() => this.#process?.kill("SIGKILL"), 10_000);
    await this.#end("SIGTERM");
    clearTimeout(timer);
  }

  /** Ends it without a chance to close its connections or files; resolves when it is gone. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** The last lines that it printed, for the message of a failing test. */
  tail(lines = 15): string {
    return readFileSync(this.#logPath, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    if (child === undefined || !this.isRunning) return;
    const gone = once(child, "exit");
    child.kill(signal);
    await gone;
  }
}

/** True if a process with this id exists. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
