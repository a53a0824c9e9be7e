import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { isDeepStrictEqual, promisify } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";

/** What a backend has applied: the addresses of the endpoints of each Service, sorted. *Shape:* `default/web`. */
export type AppliedState = Readonly<Record<string, readonly string[]>>;

/**
 * How the backend says what it has applied: on standard output, a line `{"services": {…}}` after each state; by a shell
 * command that prints such a line; or only revisions, in its acknowledgements.
 */
export type Report = "stdout" | "acks" | { readonly command: string };

/** A process of the backend under test. */
export class TestedBackend {
  readonly #child: ChildProcess;
  readonly #report: Report;
  readonly #env: NodeJS.ProcessEnv;
  /** States that the backend reported, in order; only with the report "stdout". */
  readonly states: AppliedState[] = [];
  #errors = "";
  /** Exit code or signal of the process; undefined while it runs. */
  ended: string | undefined;

  /**
   * Starts `command`, in which `{api}` and `{node}` stand for the watcher's address and the node's name. Errors:
   * BAD_OPTION if there is no such program.
   */
  static async start(command: readonly string[], options: BackendOptions): Promise<TestedBackend> {
    try {
      const backend = new TestedBackend(command, options);
      await once(backend.#child, "spawn");
      return backend;
    } catch (cause) {
      throw new ProcessError("BAD_OPTION", `the backend cannot be started: ${reasonOf(cause)}`, { cause });
    }
  }

  private constructor(command: readonly string[], { api, node, report }: BackendOptions) {
    const fill = (text: string): string => text.replaceAll("{api}", api).replaceAll("{node}", node);
    const [program = "", ...args] = command.map(fill);
    this.#report = report;
    this.#env = { ...process.env, KPNG_API: api, KPNG_NODE_NAME: node };
    this.#child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: this.#env, detached: true });
    let line = "";
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      const lines = (line + text).split("\n");
      line = lines.pop() ?? "";
      for (const each of lines) this.#readLine(each);
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#errors = (this.#errors + text).slice(-maxErrors);
    });
    this.#child.once("exit", (code, signal) => {
      this.ended = signal ?? `exit code ${code}`;
      this.onEnd();
    });
    // The backend has a process group of its own, so a second Ctrl-C would leave it.
    process.once("exit", this.#killAtExit);
  }

  /** Called when the process has ended. */
  onEnd: () => void = () => undefined;

  /** The last resort when this process exits, which nothing must prevent. */
  readonly #killAtExit = (): void => {
    try {
      this.#killGroup();
    } catch {
      // The error of `kill` has been reported.
    }
  };

  #killGroup(): void {
    if (this.#child.pid !== undefined) send(-this.#child.pid, "SIGKILL");
  }

  /** The end of what it wrote to standard error. */
  get errors(): string {
    return this.#errors;
  }

  #readLine(line: string): void {
    if (this.#report !== "stdout" || !line.startsWith("{")) return;
    const state = parseReport(line);
    if (state !== undefined) this.states.push(state);
  }

  /** The state that the backend says to have applied; undefined if it has said nothing, or says only revisions. */
  async applied(): Promise<AppliedState | undefined> {
    if (typeof this.#report === "string") return this.states.at(-1);
    const options = { env: this.#env, timeout: commandLimitMs };
    // A command that fails has nothing to report yet, e.g. because the file that it reads does not exist.
    const answer = await promisify(execFile)("sh", ["-c", this.#report.command], options).catch(() => undefined);
    return answer && parseReport(answer.stdout);
  }

  /** Sends a signal to the process. Errors: BAD_OPTION if this user may not. */
  signal(name: NodeJS.Signals): void {
    if (this.#child.pid !== undefined) send(this.#child.pid, name);
  }

  /** Resolves when the process has ended; rejects after `limitMs`. */
  async untilEnded(limitMs: number): Promise<void> {
    if (this.ended !== undefined) return;
    await once(this.#child, "exit", { signal: AbortSignal.timeout(limitMs) }).catch(() => {
      throw new Error(`the backend did not end within ${limitMs} ms`);
    });
  }

  /** Kills the process and its children. Errors: BAD_OPTION if this user may not. */
  async kill(): Promise<void> {
    process.off("exit", this.#killAtExit);
    this.#killGroup();
    if (this.ended === undefined) await once(this.#child, "exit");
  }
}

interface BackendOptions {
  readonly api: string;
  readonly node: string;
  readonly report: Report;
}

/** Time limit of the command that tells what is applied, in milliseconds. */
const commandLimitMs = 10_000;

/** Maximum length of the kept end of standard error, in characters. */
const maxErrors = 4_000;

/** Sends a signal to a process, or to a group by its negative number. One that has ended needs none. */
function send(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ESRCH") return;
    const advice = "if its command begins with sudo, run kpng conformance with sudo instead";
    throw new ProcessError("BAD_OPTION", `the backend cannot be signalled (${advice}): ${reasonOf(cause)}`, { cause });
  }
}

/** Returns the state in a line of a backend; undefined for another line, e.g. one of its log. */
function parseReport(text: string): AppliedState | undefined {
  try {
    const { services } = JSON.parse(text) as { readonly services?: unknown };
    if (!isAppliedState(services)) return undefined;
    return Object.fromEntries(Object.entries(services).map(([key, addresses]) => [key, addresses.toSorted()]));
  } catch {
    return undefined;
  }
}

function isAppliedState(value: unknown): value is AppliedState {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  return Object.values(value).every((one) => Array.isArray(one) && one.every((text) => typeof text === "string"));
}

/** True if both states have the same Services with the same addresses. */
export function isSameState(one: AppliedState | undefined, other: AppliedState): boolean {
  return one !== undefined && isDeepStrictEqual({ ...one }, { ...other });
}
