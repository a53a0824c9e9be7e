import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, openSync, readFileSync } from "node:fs";

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

/**
 * Child process of a test that can be stopped, killed and restarted with the same arguments.
 *
 * The kernel sends it SIGKILL when its parent dies, even if the parent is killed (PR_SET_PDEATHSIG, set by util-linux'
 * setpriv if installed). Its output goes to a file.
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
