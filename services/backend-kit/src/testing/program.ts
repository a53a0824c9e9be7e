import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

/** One of our programs, run as a child process by tests of the kit, of backends and of `test/`. */
export interface Program {
  /** Process id; 0 if it could not be started. */
  readonly pid: number;
  /** The exit code; null if a signal killed it. */
  readonly ended: Promise<number | null>;
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Resolves when standard output has exactly this text; rejects if the process ends before. */
  printed(text: string): Promise<void>;
  /** Resolves when standard error contains this text; rejects if the process ends before. */
  said(text: string): Promise<void>;
  /** Sends SIGTERM. */
  stop(): void;
  signal(name: NodeJS.Signals): void;
  /** Sends SIGTERM until the program has ended, as an impatient person does; resolves with its exit code. */
  endedAtOnce(): Promise<number | null>;
  /** Sends SIGKILL. */
  kill(): void;
}

/** Starts the program with the main file `main`. `prefix` is a command that runs the one after it. */
export function startProgram(
  main: URL,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  prefix: readonly string[] = [],
): Program {
  const [command = "", ...words] = [...prefix, process.execPath, fileURLToPath(main), ...args];
  const child = spawn(command, words, { env: { ...process.env, ...env } });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  const until = (condition: () => boolean, what: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const check = (): void => {
        if (condition()) resolve();
      };
      child.stdout.on("data", check);
      child.stderr.on("data", check);
      check();
      void ended.then((exitCode) =>
        reject(new Error(`exit ${exitCode} without ${what}; it said:\n${stdout}${stderr}`)),
      );
    });
  return {
    pid: child.pid ?? 0,
    ended,
    stdout: () => stdout,
    stderr: () => stderr,
    printed: (text) => until(() => stdout === text, `printing "${text}"`),
    said: (text) => until(() => stderr.includes(text), `saying "${text}"`),
    stop: () => child.kill("SIGTERM"),
    signal: (name) => void child.kill(name),
    endedAtOnce: () => {
      const timer = setInterval(() => child.kill("SIGTERM"), 100);
      return ended.finally(() => clearInterval(timer));
    },
    kill: () => child.kill("SIGKILL"),
  };
}
