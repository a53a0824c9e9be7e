import { spawn } from "node:child_process";
import { dirname } from "node:path";

/** How a command ended. */
export interface Finished {
  /** -1 if it could not be started or was ended by a signal. */
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * The environment for tools: the node of this process first, then the folders for administrators, which a user's PATH
 * on Debian lacks although `ip` and `iptables-save` in them work in a user's own namespaces.
 */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const path = [dirname(process.execPath), process.env.PATH ?? "/usr/bin:/bin", "/usr/sbin", "/sbin"].join(":");
  return { ...process.env, PATH: path };
}

/** Runs a command to its end, at most `timeoutMs`. Never rejects. */
export async function collect(command: readonly string[], input = "", timeoutMs = 60_000): Promise<Finished> {
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
    // A command that does not read its input is no failure of ours.
    child.stdin.on("error", () => undefined);
    child.stdin.end(input);
  });
}
