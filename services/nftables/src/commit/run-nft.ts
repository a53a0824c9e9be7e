import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import type { TableId } from "../netlink/element-batch.ts";
import { BackendNftError } from "../netlink/nft-error.ts";
import { ipOf } from "../render/skeleton.ts";

/** The oldest versions that kube-proxy accepts, too. */
const oldestNft = [1, 0, 1] as const;
const oldestKernel = [5, 13, 0] as const;

/**
 * Runs the program `nft`. `NftTable` uses it for chains and rules, `backend.ts` to check versions and to delete tables,
 * and `NftToolConnection` for elements. `NftablesConnection`, the standard way for elements, needs no process.
 */
export class RunNft {
  readonly #timeoutMs: number;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /** Applies commands in one transaction. Errors: COMMIT_REJECTED, after which nothing is changed; NFT_MISSING. */
  async apply(commands: string): Promise<void> {
    await this.#run(["nft", "-f", "-"], commands);
  }

  /** Runs `nft --json` with these arguments, and returns its output. Errors: READ_FAILED, NFT_MISSING. */
  async list(args: readonly string[]): Promise<string> {
    return await this.#run(["nft", "--json", ...args], "", "READ_FAILED");
  }

  /** Rejects if nft or the kernel is too old. Errors: NFT_MISSING, NFT_UNSUPPORTED. */
  async checkVersions(kernelRelease: string): Promise<void> {
    const said = await this.#run(["nft", "--version"], "");
    requireVersion("nft", said, oldestNft);
    requireVersion("the kernel", kernelRelease, oldestKernel);
  }

  async deleteTable({ family, name }: TableId): Promise<void> {
    await this.apply(`delete table ${ipOf(family)} ${name}\n`);
  }

  async #run(
    command: readonly string[],
    stdin: string,
    code: "COMMIT_REJECTED" | "READ_FAILED" = "COMMIT_REJECTED",
  ): Promise<string> {
    const end = await runProgram(command, { timeoutMs: this.#timeoutMs, stdin });
    if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
    const [program = ""] = command;
    if (end.kind === "not-started") {
      throw new BackendNftError("NFT_MISSING", `${program} cannot be started`, { cause: end.cause });
    }
    const lines = stdin.split("\n").length - 1;
    const input = stdin === "" ? "" : ` for ${lines} lines`;
    const text = `${command.join(" ")} failed${input} (${describeEnd(end, this.#timeoutMs)}): ${end.stderr.trim()}`;
    throw new BackendNftError(code, text);
  }
}

/** Rejects a version in the output of a program that is older than `oldest`. Errors: NFT_UNSUPPORTED. */
function requireVersion(what: string, said: string, oldest: readonly [number, number, number]): void {
  const found =
    /(\d+)\.(\d+)(?:\.(\d+))?/
      .exec(said)
      ?.slice(1)
      .map((part) => Number(part ?? 0)) ?? [];
  const at = oldest.findIndex((part, index) => part !== found[index]);
  if (at < 0 || (found[at] ?? 0) > (oldest[at] ?? 0)) return;
  const version = found.length === 0 ? `"${said.trim()}"` : found.join(".");
  throw new BackendNftError("NFT_UNSUPPORTED", `${what} is version ${version}; ${oldest.join(".")} or newer is needed`);
}
