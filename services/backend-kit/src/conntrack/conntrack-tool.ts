import { spawn } from "node:child_process";
import type { Family } from "@kpng/model/address.ts";
import { BackendError } from "../backend-error.ts";
import { parseFlow, type UdpFlow } from "./udp-flow.ts";

/** The kernel's table of flows, as far as the cleanup needs it. */
export interface ConntrackTool {
  /**
   * Calls `visit` for each UDP flow of a family, in one pass over the table.
   *
   * Errors: CONNTRACK_MISSING, CONNTRACK_FAILED.
   */
  visitUdp(family: Family, visit: (flow: UdpFlow) => void, signal: AbortSignal): Promise<void>;
  /**
   * Deletes all flows with these destinations and reply sources; returns how many there were.
   *
   * Errors: CONNTRACK_MISSING, CONNTRACK_FAILED; some may be deleted by then.
   */
  deleteUdp(groups: readonly UdpFlow[], signal: AbortSignal): Promise<number>;
}

/** Longest time that one call of the tool may take, in milliseconds: a dump of a million entries takes about 5 s. */
const timeoutMs = 60_000;

/**
 * The command `conntrack` of conntrack-tools, any version; 1.4.6 and newer delete in one process. `program` is another
 * name or path of it.
 */
export function createConntrackTool(program = "conntrack"): ConntrackTool {
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
      const commands = groups.map(deletion);
      try {
        await run(program, ["-R", "-"], commands.map((words) => `${words.join(" ")}\n`).join(""), signal, countLine);
      } catch (error) {
        if (!(error instanceof BackendError) || error.code !== "CONNTRACK_FAILED" || signal.aborted) throw error;
        // Older tools have no -R. They end with 1 if there was nothing to delete, which a flow that timed out explains.
        for (const words of commands) await run(program, words, "", signal, countLine, [0, 1]);
      }
      return count;
    },
  };
}

const familyName: Readonly<Record<Family, string>> = { v4: "ipv4", v6: "ipv6" };

function deletion(flow: UdpFlow): readonly string[] {
  const { family, destination, destinationPort, replySource, replySourcePort } = flow;
  return [
    ...["-D", "-f", familyName[family], "-p", "udp", "-d", destination, "--dport", `${destinationPort}`],
    ...["-r", replySource, "--reply-port-src", `${replySourcePort}`],
  ];
}

function run(
  program: string,
  args: readonly string[],
  input: string,
  signal: AbortSignal,
  onLine: (line: string) => void,
  goodExits: readonly (number | null)[] = [0],
): Promise<void> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, LC_ALL: "C", PATH: `${process.env.PATH ?? ""}:/usr/sbin:/sbin` };
    const child = spawn(program, args, { env, signal, timeout: timeoutMs, killSignal: "SIGKILL" });
    let rest = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) onLine(line);
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr = (stderr + text).slice(0, 2_000);
    });
    // The tool may end before it has read all; its exit code says so.
    child.stdin.on("error", () => undefined).end(input);
    child.once("error", (cause: NodeJS.ErrnoException) => {
      const isMissing = cause.code === "ENOENT";
      const message = isMissing ? `there is no command ${program} (Debian package conntrack)` : `cannot run ${program}`;
      reject(new BackendError(isMissing ? "CONNTRACK_MISSING" : "CONNTRACK_FAILED", message, { cause }));
    });
    child.once("close", (exitCode, killedBy) => {
      if (rest !== "") onLine(rest);
      if (goodExits.includes(exitCode)) return resolve();
      const how = killedBy === null ? `exit ${exitCode}` : `killed by ${killedBy}`;
      reject(new BackendError("CONNTRACK_FAILED", `${program} ${args[0]} failed (${how}): ${stderr.trim()}`));
    });
  });
}
