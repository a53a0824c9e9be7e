import { spawn } from "node:child_process";
import { dirname } from "node:path";

/** Output and exit status of a command. */
export interface CommandResult {
  /** -1 if the command could not be started or a signal ended it. */
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Returns the environment for tools such as `ip` and `iptables-save`.
 *
 * PATH begins with the folder of this Node.js and ends with the sbin folders, which a user's PATH on Debian lacks.
 */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const path = [dirname(process.execPath), process.env.PATH ?? "/usr/bin:/bin", "/usr/sbin", "/sbin"].join(":");
  return { ...process.env, PATH: path };
}

/**
 * Runs a command, kills it after `timeoutMs`, and returns how it ended. Never rejects. `Laboratory` calls it to enter
 * its namespaces, and `openLaboratory` to install tools. Separate from `Laboratory`, because some commands run outside
 * of it.
 */
export async function runCommand(command: readonly string[], input = "", timeoutMs = 60_000): Promise<CommandResult> {
  const [program = "", ...options] = command;
  return new Promise((resolve) => {
    const child = spawn(program, options, { env: toolEnvironment(), detached: true, timeout: timeoutMs });
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8").on("data", (text: string) => {
        output[name] += text;
      });
    }
    child.once("error", (error) => resolve({ exitCode: -1, stdout: output.stdout, stderr: error.message }));
    child.once("close", (code) => resolve({ exitCode: code ?? -1, ...output }));
    // A command may end without reading its input.
    child.stdin.on("error", () => undefined);
    child.stdin.end(input);
  });
}
