import { spawn } from "node:child_process";
import { Readable } from "node:stream";
import { BackendIptablesError } from "../iptables-error.ts";

/** How a tool ended that could be started. */
export interface ToolResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ToolOptions {
  /** What the tool reads, ASCII. Default nothing. */
  readonly input?: string | undefined;
  /** Takes what the tool prints, as it comes, in pieces cut anywhere; `stdout` of the result is then empty. */
  readonly onOutput?: ((text: string) => void) | undefined;
  /** Longest time that it may take, in milliseconds. */
  readonly timeoutMs: number;
}

/** Runs one of the tools to its end; how it ended is the caller's to judge. */
export type RunTool = (command: readonly string[], options: ToolOptions) => Promise<ToolResult>;

/**
 * Runs a tool of the iptables family.
 *
 * The input goes to stdin: as an argument it would meet the kernel's limit on the length of one argument, 128 KiB.
 *
 * Errors: IPTABLES_MISSING if it cannot be started; TOOL_TIMEOUT if it was killed when its time was up, in which case
 * the kernel holds either all of a table's transaction or nothing of it.
 */
export const runTool: RunTool = (command, { input = "", timeoutMs, onOutput }) => {
  const [program = "", ...args] = command;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env: toolEnvironment(), stdio: ["pipe", "pipe", "pipe"] });
    const output = { stdout: "", stderr: "" };
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      if (onOutput === undefined) output.stdout += text;
      else onOutput(text);
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      output.stderr += text;
    });
    let isTimeUp = false;
    const timer = setTimeout(() => {
      isTimeUp = true;
      child.kill("SIGKILL");
    }, timeoutMs);
    child.once("error", (cause) => {
      clearTimeout(timer);
      reject(new BackendIptablesError("IPTABLES_MISSING", `${program} cannot be started`, { cause }));
    });
    child.once("close", (code) => {
      clearTimeout(timer);
      const words = output.stderr.trim();
      if (isTimeUp) {
        const text = `${program} took longer than ${timeoutMs} ms for ${input.length} bytes and was killed: ${words}`;
        reject(new BackendIptablesError("TOOL_TIMEOUT", text));
      } else resolve({ exitCode: code ?? -1, ...output });
    });
    // A tool that stops at a bad line does not read the rest; its exit code says so.
    child.stdin.on("error", () => undefined);
    Readable.from(blocksOf(input)).pipe(child.stdin);
  });
};

/** In blocks: as one piece it would be copied once more as a whole, many megabytes with very many Services. */
function* blocksOf(text: string): Generator<string, void, void> {
  const length = 64 * 1024;
  for (let start = 0; start < text.length; start += length) yield text.slice(start, start + length);
}

/**
 * The C locale, so that messages can be read; the folders for administrators, which a user's PATH may lack; and huge pages
 * for the heap, where the C library is glibc (from 2.35) and the kernel leaves it to the program: iptables-legacy takes a
 * kilobyte of new memory for each rule, and touching it page by page is up to a quarter of its time.
 */
function toolEnvironment(): NodeJS.ProcessEnv {
  const { PATH = "/usr/bin:/bin", GLIBC_TUNABLES = "" } = process.env;
  const tunables = [GLIBC_TUNABLES, "glibc.malloc.hugetlb=1"].filter((text) => text !== "").join(":");
  return { ...process.env, LC_ALL: "C", PATH: `${PATH}:/usr/sbin:/sbin`, GLIBC_TUNABLES: tunables };
}
