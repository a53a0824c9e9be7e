import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { toolEnvironment } from "@kpng/backend-kit/exec/tool-environment.ts";
import { BackendIptablesError } from "./iptables-error.ts";

/** Result of a tool that exited by itself. */
export interface ToolResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ToolOptions {
  /** Standard input of the tool; ASCII. Default: empty. */
  readonly input?: string | undefined;
  /** Receives the output while it arrives, in pieces cut anywhere; `stdout` of the result is then empty. */
  readonly onOutput?: ((text: string) => void) | undefined;
  /** Time after which the tool is killed, in milliseconds. */
  readonly timeoutMs: number;
}

/**
 * Runs a tool until it exits. The caller checks the exit status. Tests pass one that runs it in a network namespace.
 */
export type RunTool = (command: readonly string[], options: ToolOptions) => Promise<ToolResult>;

/** iptables-save prints about 200 MB for 100 000 Services. */
const maxOutputBytes = 1024 * 1024 * 1024;

/**
 * Runs a tool of the iptables family.
 *
 * Errors: IPTABLES_MISSING if it cannot be started. TOOL_TIMEOUT if it was killed; of each table, the kernel then has
 * either committed the whole transaction or none of it.
 */
export const runTool: RunTool = async (command, { input = "", timeoutMs, onOutput }) => {
  const options = { timeoutMs, stdin: input, stdout: onOutput, env: toolEnvironment(), maxOutputBytes };
  const end = await runProgram(command, options);
  if (end.kind === "exited") return end;
  const [program = ""] = command;
  if (end.kind === "not-started") {
    throw new BackendIptablesError("IPTABLES_MISSING", `${program} cannot be started`, { cause: end.cause });
  }
  const text = `${program} was ${describeEnd(end, timeoutMs)} with ${input.length} bytes of input: ${end.stderr.trim()}`;
  throw new BackendIptablesError("TOOL_TIMEOUT", text);
};
