import { describeEnd, runProgram, toolEnvironment } from "@kpng/backend-kit/exec/run-program.ts";
import { BackendNftError } from "../netlink/netlink-socket.ts";

/** The oldest supported versions, the same as those of kube-proxy. */
const oldestNft = [1, 0, 1] as const;
const oldestKernel = [5, 13, 0] as const;

/**
 * Maximum duration of one nft run, in milliseconds. It is long because nft reads all tables, and other programs may
 * have large ones.
 */
const timeoutMs = 300_000;

/**
 * Applies commands that add chains and rules in one transaction, using the program `nft`. `NftablesConnection` writes
 * elements and reads tables.
 *
 * Errors: COMMIT_REJECTED, after which nothing is changed, unless nft was killed at its time limit; NFT_UNSUPPORTED.
 */
export async function applyNft(commands: string): Promise<void> {
  await runNft(["nft", "-f", "-"], commands, "COMMIT_REJECTED");
}

/** Rejects if nft does not run, or if nft or the kernel is too old. Errors: NFT_UNSUPPORTED. */
export async function checkVersions(kernelRelease: string): Promise<void> {
  const output = await runNft(["nft", "--version"], "", "NFT_UNSUPPORTED");
  requireVersion("nft", output, oldestNft);
  requireVersion("the kernel", kernelRelease, oldestKernel);
}

async function runNft(
  command: readonly string[],
  stdin: string,
  failure: "COMMIT_REJECTED" | "NFT_UNSUPPORTED",
): Promise<string> {
  const end = await runProgram(command, { timeoutMs, stdin, env: toolEnvironment() });
  if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
  const [program = ""] = command;
  if (end.kind === "not-started") {
    throw new BackendNftError("NFT_UNSUPPORTED", `${program} cannot be started`, { cause: end.cause });
  }
  const lines = stdin.split("\n").length - 1;
  const input = stdin === "" ? "" : ` for ${lines} lines`;
  // nft 1.1.2 and newer store types of sets in a form that crashes older versions: kubernetes/kubernetes#136786.
  const isCrash = end.kind === "killed" && end.signal === "SIGSEGV";
  const detail = isCrash ? "a set was made by a newer nft; install nft 1.1.2 or newer here, too" : end.stderr.trim();
  const text = `${command.join(" ")} failed${input} (${describeEnd(end, timeoutMs)}): ${detail}`;
  throw new BackendNftError(failure, text);
}

/** Rejects the version found in the output of a program if it is older than `oldest`. Errors: NFT_UNSUPPORTED. */
function requireVersion(what: string, output: string, oldest: readonly [number, number, number]): void {
  const version =
    /(\d+)\.(\d+)(?:\.(\d+))?/
      .exec(output)
      ?.slice(1)
      .map((part) => Number(part ?? 0)) ?? [];
  const at = oldest.findIndex((part, index) => part !== version[index]);
  if (at < 0 || (version[at] ?? 0) > (oldest[at] ?? 0)) return;
  const described = version.length === 0 ? `"${output.trim()}"` : version.join(".");
  throw new BackendNftError(
    "NFT_UNSUPPORTED",
    `${what} is version ${described}; ${oldest.join(".")} or newer is needed`,
  );
}
