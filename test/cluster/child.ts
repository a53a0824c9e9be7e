import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, existsSync, openSync, readFileSync } from "node:fs";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";

/** Returns whether the file exists and is executable. */
export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const setpriv = "/usr/bin/setpriv";

/** Starts a command whose output is appended to a file. */
type Starter = (command: readonly string[], logPath: string) => ChildProcess;

/**
 * The kernel sends the process SIGKILL when its parent dies, even if the parent is killed (PR_SET_PDEATHSIG, set by
 * util-linux' setpriv if installed).
 */
const startHere: Starter = (command, logPath) => {
  const output = openSync(logPath, "a");
  const dying = isExecutable(setpriv) ? [setpriv, "--pdeathsig", "KILL"] : [];
  const [path = "", ...args] = [...dying, ...command];
  return spawn(path, args, { stdio: ["ignore", output, output] });
};

/** Returns a starter of programs in a namespace of a laboratory, which kills them at the latest when it closes. */
export function startIn(laboratory: Laboratory, namespace: string): Starter {
  return (command, logPath) => {
    const script = 'exec "$@" >>"$0" 2>&1 </dev/null';
    const child = laboratory.start(namespace, ["sh", "-c", script, logPath, ...command]);
    // A program that cannot be started has no exit status; the check for readiness reports it.
    return child.on("error", () => undefined);
  };
}

/** Child process of a test that can be stopped, killed and restarted with the same arguments. */
export class Child {
  readonly name: string;
  readonly #command: readonly string[];
  readonly #logPath: string;
  readonly #start: Starter;
  #process: ChildProcess | undefined;

  constructor(name: string, command: readonly string[], logPath: string, start: Starter = startHere) {
    this.name = name;
    this.#command = command;
    this.#logPath = logPath;
    this.#start = start;
  }

  start(): void {
    if (!this.isRunning) this.#process = this.#start(this.#command, this.#logPath);
  }

  get isRunning(): boolean {
    return this.#process !== undefined && this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Process ID; undefined before the start. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Stops the process with SIGTERM, and kills it after ten seconds; resolves after its exit. */
  async stop(): Promise<void> {
    const timer = setTimeout(() => this.#process?.kill("SIGKILL"), 10_000);
    await this.#end("SIGTERM");
    clearTimeout(timer);
  }

  /** Kills the process, so that it cannot close connections or files; resolves after its exit. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Returns the last lines of its output, for the message of a failing test. */
  tail(lines = 15): string {
    if (!existsSync(this.#logPath)) return "";
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

/** Returns whether a process with this id exists. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
