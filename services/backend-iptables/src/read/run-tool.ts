import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { toolEnvironment } from "@kpng/backend-kit/exec/tool-environment.ts";
import { BackendIptablesError } from "./iptables-error.ts";

interface ToolResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface ToolOptions {
  /** Standard input of the tool. ASCII only, so that its length is its number of bytes. Default: empty. */
  readonly input?: string | undefined;
  /** Receives the output as it arrives, in pieces of any length. `stdout` of the result is then empty. */
  readonly onOutput?: ((text: string) => void) | undefined;
  /** Time after which the tool is killed, in milliseconds. */
  readonly timeoutMs: number;
}

/**
 * Runs an iptables tool until it exits. The caller checks the exit status. The functions that read and write rules take
 * it as a parameter, so that a test can run the tools in a network namespace.
 */
export type RunTool = (command: readonly string[], options: ToolOptions) => Promise<ToolResult>;

/** iptables-save prints about 200 MB for 100 000 Services. */
const maxOutputBytes = 1024 * 1024 * 1024;

/**
 * The {@link RunTool} of the backend: it runs all iptables-save, iptables-restore, iptables and nfacct commands.
 * `openRuleSets`, `observeRules` and `removeRules` pass it to the functions that read and write rules.
 *
 * Separate from `runProgram` of backend-kit: it adds the limits of these tools, and throws errors for a tool without an
 * exit status.
 *
 * Errors: IPTABLES_MISSING if the tool cannot be started. TOOL_TIMEOUT if the tool was killed. The kernel may then have
 * committed some tables of a transaction, but none of them partly.
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
