import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { Readable } from "node:stream";

/** Options of {@link runProgram}. */
export interface ProgramOptions {
  /** Time after which the program is killed, in milliseconds. */
  readonly timeoutMs: number;
  /** Text for its standard input, or an open file that becomes its standard input. Default: empty. */
  readonly stdin?: string | number | undefined;
  /**
   * Receives standard output while it arrives, in pieces cut anywhere; or an open file that becomes standard output.
   * `stdout` of the result is empty then. Default: standard output is collected.
   */
  readonly stdout?: ((text: string) => void) | number | undefined;
  /** An open file that becomes standard error; `stderr` of the result is empty then. Default: its end is collected. */
  readonly stderr?: number | undefined;
  /** Environment of the program. Default: our own. */
  readonly env?: NodeJS.ProcessEnv | undefined;
  /** Standard output beyond this many bytes ends the program. Default 256 MiB. */
  readonly maxOutputBytes?: number | undefined;
  /** Time between SIGTERM and SIGKILL when the program is stopped, in milliseconds. Default 0: SIGKILL at once. */
  readonly graceMs?: number | undefined;
  /** Stops the program. Default: only its time limit does. */
  readonly signal?: AbortSignal | undefined;
}

/** How a run of a program ended. */
export type ProgramEnd =
  | { readonly kind: "exited"; readonly exitCode: number; readonly stdout: string; readonly stderr: string }
  /** Another process killed it. */
  | { readonly kind: "killed"; readonly signal: NodeJS.Signals; readonly stderr: string }
  /** It exceeded its time or its output, or `signal` aborted: it was stopped with every process of its group. */
  | { readonly kind: "stopped"; readonly reason: StopReason; readonly stderr: string }
  | { readonly kind: "not-started"; readonly cause: NodeJS.ErrnoException };

/** Why a program was stopped. */
type StopReason = "timeout" | "output" | "aborted";

/** Standard output that is accepted by default: iptables-save of 50 000 Services prints about a third of this. */
const defaultOutputBytes = 256 * 1024 * 1024;

/** How much of standard error is kept: the end, where programs say why they stop. *Unit:* characters. */
const maxErrorLength = 4 * 1024;

/**
 * Runs a program to its end. Limits, cancellation and cleanup are the same for tools and for users' programs.
 *
 * The program gets a process group of its own, which is killed as a whole when the program is stopped, and when our
 * process exits meanwhile; Ctrl-C in a terminal does not reach it. Processes that a program leaves behind when it exits
 * by itself are left alone, and so are processes that have left the group.
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
      // A process outside the group may hold the other ends of the pipes, and "close" would wait for it.
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
    // The program is gone, but what it started may have ignored the SIGTERM.
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

/** Describes the end of a program that did not exit by itself with 0, for a message. *Shape:* `exit 3`. */
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
  // A program that stops early does not read the rest; its exit status says so.
  stdin?.on("error", () => undefined);
  // Undefined when spawn fails with EMFILE.
  if (stdin) Readable.from(blocksOf(text)).pipe(stdin);
}

/** In blocks: in one piece the text would be copied once more, many megabytes with very many Services. */
function* blocksOf(text: string): Generator<string, void, void> {
  const length = 64 * 1024;
  for (let start = 0; start < text.length; start += length) yield text.slice(start, start + length);
}

/** A group whose last process is gone, or that belongs to another user after `sudo`, is not an error. */
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
 * Returns the environment for the system's network tools: our own, with the C locale, so that their messages can be
 * parsed; with the folders for administrators, which a user's PATH may lack; and with huge pages for the heap, for
 * glibc 2.35 and newer: iptables-legacy needs a kilobyte of new memory for each rule, and page faults would take up to
 * a quarter of its time.
 *
 * `runProgram` also runs users' programs, in the plain environment.
 */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const { PATH = "/usr/bin:/bin", GLIBC_TUNABLES = "" } = process.env;
  const tunables = [GLIBC_TUNABLES, "glibc.malloc.hugetlb=1"].filter((text) => text !== "").join(":");
  return { ...process.env, LC_ALL: "C", PATH: `${PATH}:/usr/sbin:/sbin`, GLIBC_TUNABLES: tunables };
}

/**
 * Returns whether iptables says that the kernel lacks what its variant needs: nf_tables or the legacy tables. Programs
 * of both variants are often installed on such a kernel. `--cleanup` skips the variant, which can have no rules.
 *
 * *Source:* the words of iptables 1.8.9; those about a generation id come from kernels without nf_tables.
 */
export function saysUnsupported(text: string): boolean {
  return /(?:Protocol|Operation) not (?:supported|available)|generation id: Invalid argument|need to insmod/.test(text);
}
