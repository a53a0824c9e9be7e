import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { Readable } from "node:stream";

export interface ProgramOptions {
  /** Time after which the program is killed, in milliseconds. */
  readonly timeoutMs: number;
  /** Text to write to standard input, or the descriptor of an open file that becomes standard input. Default: empty. */
  readonly stdin?: string | number | undefined;
  /**
   * Function that receives standard output as it arrives, in arbitrarily cut pieces, or the descriptor of an open file
   * that becomes standard output. `stdout` of the result is then empty. Default: standard output is collected.
   */
  readonly stdout?: ((text: string) => void) | number | undefined;
  /**
   * Descriptor of an open file that becomes standard error; `stderr` of the result is then empty. Default: the end of
   * standard error is collected.
   */
  readonly stderr?: number | undefined;
  readonly env?: NodeJS.ProcessEnv | undefined;
  /** Maximum standard output, in bytes; a program that writes more is stopped. Default 256 MiB. */
  readonly maxOutputBytes?: number | undefined;
  /** Time between SIGTERM and SIGKILL when the program is stopped, in milliseconds. Default 0: SIGKILL immediately. */
  readonly graceMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export type ProgramEnd =
  | { readonly kind: "exited"; readonly exitCode: number; readonly stdout: string; readonly stderr: string }
  /** Another process killed it. */
  | { readonly kind: "killed"; readonly signal: NodeJS.Signals; readonly stderr: string }
  /** It exceeded its time or output limit, or `signal` aborted, and it was stopped with every process in its group. */
  | { readonly kind: "stopped"; readonly reason: StopReason; readonly stderr: string }
  | { readonly kind: "not-started"; readonly cause: NodeJS.ErrnoException };

type StopReason = "timeout" | "output" | "aborted";

/** With 50 000 Services, iptables-save prints about a third of this. */
const defaultOutputBytes = 256 * 1024 * 1024;

/** Number of characters of standard error that are kept: its end, where programs say why they stop. */
const maxErrorLength = 4 * 1024;

/**
 * Runs a program until it ends.
 *
 * The program gets its own process group, which is killed as a whole when the program is stopped, or when our process
 * exits first. Ctrl-C in a terminal does not reach the group. Processes that a program leaves behind when it exits by
 * itself are left alone, and so are processes that have left the group.
 *
 * Never rejects. *Bound:* `maxOutputBytes` of output, 4 KiB of standard error.
 */
export function runProgram(command: readonly string[], options: ProgramOptions): Promise<ProgramEnd> {
  const { timeoutMs, env, stdin = "", stdout, stderr, graceMs = 0, signal } = options;
  const [program = "", ...args] = command;
  if (signal?.aborted === true) return Promise.resolve({ kind: "stopped", reason: "aborted", stderr: "" });
  const spawned: SpawnOptions = { env, detached: true, stdio: [pipeOr(stdin), pipeOr(stdout), stderr ?? "pipe"] };
  return new Promise((resolve) => {
    let child: ChildProcess;
    try {
      child = spawn(program, args, spawned);
    } catch (cause) {
      // Node.js throws some errors instead of emitting them, for example ENOTDIR and E2BIG.
      resolve({ kind: "not-started", cause: cause as NodeJS.ErrnoException });
      return;
    }
    let reason: StopReason | undefined;
    let graceTimer: NodeJS.Timeout | undefined;
    const kill = (): void => {
      killGroup(child, "SIGKILL");
      // A process outside the group may hold the other ends of the pipes open, and the "close" event would wait for it.
      child.stdout?.destroy();
      child.stderr?.destroy();
    };
    const stop = (why: StopReason): void => {
      if (reason !== undefined) return;
      reason = why;
      if (graceMs > 0) {
        killGroup(child, "SIGTERM");
        graceTimer = setTimeout(kill, graceMs);
      } else kill();
    };
    const onAbort = (): void => stop("aborted");
    const timer = setTimeout(() => stop("timeout"), timeoutMs);
    signal?.addEventListener("abort", onAbort, { once: true });
    process.once("exit", kill);
    const output = collectOutput(child, options, () => stop("output"));
    const settle = (end: ProgramEnd): void => {
      clearTimeout(timer);
      clearTimeout(graceTimer);
      signal?.removeEventListener("abort", onAbort);
      process.removeListener("exit", kill);
      resolve(end);
    };
    child.once("error", (cause) => settle({ kind: "not-started", cause }));
    // The program is gone, but processes that it started may have ignored SIGTERM.
    child.once("exit", () => reason !== undefined && kill());
    child.once("close", (exitCode, killedBy) => {
      const { stdout, stderr } = output;
      if (reason !== undefined) settle({ kind: "stopped", reason, stderr });
      else if (killedBy !== null) settle({ kind: "killed", signal: killedBy, stderr });
      else settle({ kind: "exited", exitCode: exitCode ?? 0, stdout, stderr });
    });
    if (typeof stdin === "string") writeInput(child, stdin);
  });
}

/** Describes, for a message, how a failed program ended. *Shape:* `exit 3`. */
export function describeEnd(end: ProgramEnd, timeoutMs: number): string {
  switch (end.kind) {
    case "exited":
      return `exit ${end.exitCode}`;
    case "killed":
      return `killed by ${end.signal}`;
    case "not-started":
      return end.cause.message;
    case "stopped":
      if (end.reason === "timeout") return `killed after ${timeoutMs} ms`;
      return end.reason === "aborted" ? "cancelled" : "killed because it printed too much";
  }
}

function pipeOr(stream: string | number | ((text: string) => void) | undefined): "pipe" | number {
  return typeof stream === "number" ? stream : "pipe";
}

/** Calls `onFlood` for each piece of standard output beyond the limit, which is dropped. */
function collectOutput(child: ChildProcess, options: ProgramOptions, onFlood: () => void) {
  const { stdout: onText, maxOutputBytes = defaultOutputBytes } = options;
  const output = { stdout: "", stderr: "" };
  let bytes = 0;
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    bytes += Buffer.byteLength(text);
    if (bytes > maxOutputBytes) onFlood();
    else if (typeof onText === "function") onText(text);
    else output.stdout += text;
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    output.stderr = (output.stderr + text).slice(-maxErrorLength);
  });
  return output;
}

function writeInput({ stdin }: ChildProcess, text: string): void {
  // A program that ends early does not read the rest of its input; its exit status shows the failure.
  stdin?.on("error", () => undefined);
  // `stdin` is undefined if spawn fails with EMFILE.
  if (stdin) Readable.from(blocksOf(text)).pipe(stdin);
}

/** If the text were written in one piece, Node.js would copy it once more: many megabytes with very many Services. */
function* blocksOf(text: string): Generator<string, void, void> {
  const length = 64 * 1024;
  for (let start = 0; start < text.length; start += length) yield text.slice(start, start + length);
}

/** Ignores that the last process of the group is gone, or that the group belongs to another user after `sudo`. */
function killGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ESRCH" && code !== "EPERM") throw error;
  }
}

/**
 * Returns the environment for the system's network tools. It is our own with three changes: the C locale, so that
 * messages can be parsed; the folders for administrators, which a user's PATH may lack; and huge pages for the heap
 * (glibc 2.35 and newer), because iptables-legacy needs a kilobyte of new memory for each rule and would spend up to a
 * quarter of its time on page faults.
 *
 * Users' programs run in the unchanged environment.
 */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const { PATH = "/usr/bin:/bin", GLIBC_TUNABLES = "" } = process.env;
  const tunables = [GLIBC_TUNABLES, "glibc.malloc.hugetlb=1"].filter((text) => text !== "").join(":");
  return { ...process.env, LC_ALL: "C", PATH: `${PATH}:/usr/sbin:/sbin`, GLIBC_TUNABLES: tunables };
}
