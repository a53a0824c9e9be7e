import { describeEnd, type ProgramEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { toolEnvironment } from "@kpng/backend-kit/exec/tool-environment.ts";

// Shadow mode runs programs only to read kube-proxy's rules. Separate from `openKubeProxy` and `readNftables`, because
// both run programs with these functions.

/** Runs a program to its end, at most for `timeoutMs` milliseconds. A type, so that tests can run it in a namespace. */
export type RunCommand = (command: readonly string[], timeoutMs: number) => Promise<ProgramEnd>;

/** iptables-save prints about 200 MB for 100 000 Services. */
const maxOutputBytes = 1024 * 1024 * 1024;

/** The {@link RunCommand} of shadow mode: backend-kit's `runProgram` with the limits for its programs. */
export const runCommand: RunCommand = (command, timeoutMs) =>
  runProgram(command, { timeoutMs, env: toolEnvironment(), maxOutputBytes });

/** Describes how a program failed, with its own words. */
export function describeFailure(end: ProgramEnd, timeoutMs: number): string {
  const words = "stderr" in end ? end.stderr.trim() : "";
  return [describeEnd(end, timeoutMs), ...(words === "" ? [] : [words])].join(": ");
}
