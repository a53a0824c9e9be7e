import { describeEnd, runProgram, toolEnvironment } from "@kpng/backend-kit/exec/run-program.ts";
import { BackendIpvsError, type BackendIpvsErrorCode } from "../render/kernel-objects.ts";

/** Maximum duration of a tool run, in milliseconds. */
const timeoutMs = 300_000;

/**
 * Runs ipvsadm, ipset, ip and the iptables tools. Each run handles a whole batch, so a sync needs only a few processes.
 *
 * Runs of ipvsadm never overlap. Both families are synced at the same time, and the kernel lists virtual servers in
 * pieces, so one family's list could lack entries if the other family deleted virtual servers in the meantime.
 */
export class RunTool {
  /** The last run of ipvsadm; never rejects. */
  #ipvsadm: Promise<unknown> = Promise.resolve();

  /** Returns the output of a tool that reads the kernel's state. Errors: READ_FAILED, TOOL_MISSING. */
  async read(command: readonly string[]): Promise<string> {
    return await this.#inTurn(command, "", "READ_FAILED");
  }

  /**
   * Passes lines (possibly none) to a tool that changes the kernel's state. Errors: COMMIT_REJECTED, after which some
   * lines may be in force; TOOL_MISSING.
   */
  async write(command: readonly string[], lines: readonly string[]): Promise<void> {
    await this.#inTurn(command, lines.map((line) => `${line}\n`).join(""), "COMMIT_REJECTED");
  }

  #inTurn(command: readonly string[], stdin: string, code: BackendIpvsErrorCode): Promise<string> {
    if (command[0] !== "ipvsadm") return this.#run(command, stdin, code);
    const run = this.#ipvsadm.then(() => this.#run(command, stdin, code));
    this.#ipvsadm = run.catch(() => undefined);
    return run;
  }

  async #run(command: readonly string[], stdin: string, code: BackendIpvsErrorCode): Promise<string> {
    const end = await runProgram(command, { timeoutMs, stdin, env: toolEnvironment() });
    if (end.kind === "not-started") {
      throw new BackendIpvsError("TOOL_MISSING", `${command[0]} cannot be started`, { cause: end.cause });
    }
    // `ipvsadm -R` continues after an error and exits with status 0.
    const isFailed = command[0] === "ipvsadm" && end.stderr.trim() !== "";
    if (end.kind === "exited" && end.exitCode === 0 && !isFailed) return end.stdout;
    const count = stdin === "" ? "" : ` for ${stdin.split("\n").length - 1} lines`;
    const said = end.stderr.trim() || "no message";
    throw new BackendIpvsError(code, `${command.join(" ")} failed${count} (${describeEnd(end, timeoutMs)}): ${said}`);
  }
}
