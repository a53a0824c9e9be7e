import type { Family } from "@kpng/model/address.ts";
import { describeEnd, runProgram, toolEnvironment } from "../exec/run-program.ts";
import { BackendError } from "../types/backend-error.ts";
import { parseFlow, type UdpFlow } from "./udp-flow.ts";

/** Access to the UDP entries of the kernel's conntrack table, for `StaleFlowCleaner`. */
export interface ConntrackTool {
  /**
   * Calls `visit` for each UDP flow of a family, in one pass over the table.
   *
   * Errors: CONNTRACK_MISSING, CONNTRACK_FAILED.
   */
  visitUdp(family: Family, visit: (flow: UdpFlow) => void, signal: AbortSignal): Promise<void>;
  /**
   * Deletes all flows with one of these pairs of destination and reply source. Returns the number of deleted flows.
   *
   * Errors: CONNTRACK_MISSING, CONNTRACK_FAILED. Some flows may be deleted already.
   */
  deleteUdp(groups: readonly UdpFlow[], signal: AbortSignal): Promise<number>;
}

/** Time limit of one call of the tool, in milliseconds. Listing a million entries takes about 5 s. */
const timeoutMs = 60_000;

/** Exit status of the program for an option that it does not know. */
const unknownOption = 2;

/** Limit of the output of one call, in bytes. A list of a million entries has about 200 MB. */
const maxOutputBytes = 1024 * 1024 * 1024;

/**
 * Returns a `ConntrackTool` that runs the program `conntrack` of conntrack-tools, any version. Since 1.4.7 it has the
 * option -R, which reads many deletions from standard input; an older one is started once for each deletion. `program`
 * is its name or path.
 */
export function createConntrackTool(program = "conntrack"): ConntrackTool {
  /** False once the program has refused -R. */
  let hasBatches = true;
  return {
    async visitUdp(family, visit, signal) {
      await run(program, ["-L", "-p", "udp", "-f", familyName[family]], "", signal, (line) => {
        const flow = parseFlow(line);
        if (flow !== undefined) visit(flow);
      });
    },
    async deleteUdp(groups, signal) {
      if (groups.length === 0) return 0;
      let count = 0;
      const countLine = (line: string): void => {
        if (parseFlow(line) !== undefined) count++;
      };
      const commands = groups.map(deletionArguments);
      if (hasBatches) {
        const text = commands.map((words) => `${words.join(" ")}\n`).join("");
        const exitCode = await run(program, ["-R", "-"], text, signal, countLine, [0, unknownOption]);
        if (exitCode === 0) return count;
        hasBatches = false;
      }
      // Exit status 1 means that nothing matched, because the flow timed out meanwhile.
      for (const words of commands) await run(program, words, "", signal, countLine, [0, 1]);
      return count;
    },
  };
}

const familyName: Readonly<Record<Family, string>> = { v4: "ipv4", v6: "ipv6" };

function deletionArguments(flow: UdpFlow): readonly string[] {
  const { family, destination, destinationPort, replySource, replySourcePort } = flow;
  return [
    ...["-D", "-f", familyName[family], "-p", "udp", "-d", destination, "--dport", `${destinationPort}`],
    ...["-r", replySource, "--reply-port-src", `${replySourcePort}`],
  ];
}

/**
 * Runs the program and passes each line of its output on. Returns its exit status, one of `goodExits`. Errors:
 * CONNTRACK_MISSING, CONNTRACK_FAILED.
 */
async function run(
  program: string,
  args: readonly string[],
  stdin: string,
  signal: AbortSignal,
  onLine: (line: string) => void,
  goodExits: readonly number[] = [0],
): Promise<number> {
  let rest = "";
  const takeText = (text: string): void => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) onLine(line);
  };
  const options = { timeoutMs, stdin, stdout: takeText, signal, env: toolEnvironment(), maxOutputBytes };
  const end = await runProgram([program, ...args], options);
  if (rest !== "") onLine(rest);
  if (end.kind === "exited" && goodExits.includes(end.exitCode)) return end.exitCode;
  if (end.kind !== "not-started") {
    const text = `${program} ${args[0]} failed (${describeEnd(end, timeoutMs)}): ${end.stderr.trim()}`;
    throw new BackendError("CONNTRACK_FAILED", text);
  }
  const { cause } = end;
  const isMissing = cause.code === "ENOENT";
  const message = isMissing ? `command ${program} not found (Debian package conntrack)` : `cannot run ${program}`;
  throw new BackendError(isMissing ? "CONNTRACK_MISSING" : "CONNTRACK_FAILED", message, { cause });
}
