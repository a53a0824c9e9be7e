import { describeEnd, runProgram, toolEnvironment } from "@kpng/backend-kit/exec/run-program.ts";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import type { Family } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { CodedError } from "@kpng/process/process-error.ts";

/** Error codes of kpng-iptables. `docs/errors.md` explains each. */
type BackendIptablesErrorCode =
  | "IPTABLES_MISSING"
  | "SAVE_FAILED"
  | "TABLE_INCOMPATIBLE"
  | "RESTORE_REFUSED"
  | "TOOL_TIMEOUT";

/** The failure of an iptables tool. */
export class BackendIptablesError extends CodedError<BackendIptablesErrorCode> {
  override readonly name = "BackendIptablesError";
}

interface ToolResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface ToolOptions {
  /** Standard input for the tool. It must be ASCII, so that its length is its number of bytes. Default: empty. */
  readonly input?: string | undefined;
  /** Receives the output as it arrives, in pieces of any length; `stdout` of the result is then empty. */
  readonly onOutput?: ((text: string) => void) | undefined;
}

/**
 * Runs an iptables tool until it exits. The caller checks the exit status. The functions that read and write rules take
 * a `RunTool` as a parameter, so that a test can run the tools in a network namespace.
 */
export type RunTool = (command: readonly string[], options?: ToolOptions) => Promise<ToolResult>;

/** Time after which a tool is killed, in milliseconds. iptables-legacy may need minutes for 100 000 Services. */
const timeoutMs = 300_000;

/** Maximum size of a tool's output, in bytes. For 100 000 Services, iptables-save prints about 200 MB. */
const maxOutputBytes = 1024 * 1024 * 1024;

/**
 * The {@link RunTool} of the backend: it runs all iptables-save, iptables-restore and iptables commands.
 *
 * Errors: IPTABLES_MISSING if the tool cannot be started. TOOL_TIMEOUT if the tool was killed; the kernel may then have
 * committed some tables of a transaction, but none partially.
 */
export const runTool: RunTool = async (command, { input = "", onOutput } = {}) => {
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

/** The kernel mechanism to which the tools write. The tools of one variant do not show the rules of the other. */
export type Variant = "nft" | "legacy";

/** The iptables programs for one family. */
export interface Tools {
  readonly family: Family;
  /** Name of the program that prints the installed rules, e.g. `iptables-nft-save`. */
  readonly save: string;
  /** Name of the program that commits a transaction, e.g. `iptables-nft-restore`. */
  readonly restore: string;
  /** *Shape:* `1.8.9`. */
  readonly version: string;
  readonly variant: Variant;
}

/** The oldest version that supports `--random-fully` and whose iptables-restore waits for the lock. */
const minVersion = [1, 6, 2] as const;

/** Looks for the tools of one family and checks their version. Errors: IPTABLES_MISSING. */
export async function findTools(family: Family, desired: Variant | "auto", run: RunTool): Promise<Tools> {
  const base = family === "v4" ? "iptables" : "ip6tables";
  const name = desired === "auto" ? base : `${base}-${desired}`;
  const { exitCode, stdout, stderr } = await run([name, "--version"]);
  const match = /v(\d+)\.(\d+)\.(\d+)(?: \((nf_tables|legacy)\))?/.exec(stdout);
  if (exitCode !== 0 || match === null) {
    throw new BackendIptablesError(
      "IPTABLES_MISSING",
      `${name} --version failed (exit status ${exitCode}): ${stdout}${stderr}`.trim(),
    );
  }
  const version = [Number(match[1]), Number(match[2]), Number(match[3])] as const;
  if (isOlder(version, minVersion)) {
    const text = `${name} has version ${version.join(".")}; at least ${minVersion.join(".")} is required`;
    throw new BackendIptablesError("IPTABLES_MISSING", text);
  }
  return {
    family,
    save: `${name}-save`,
    restore: `${name}-restore`,
    version: version.join("."),
    variant: match[4] === "nf_tables" ? "nft" : "legacy",
  };
}

function isOlder(version: readonly number[], than: readonly number[]): boolean {
  const at = version.findIndex((number, index) => number !== than[index]);
  return at >= 0 && (version[at] ?? 0) < (than[at] ?? 0);
}

/**
 * Returns the maximum number of chains that one transaction should create. Larger transactions are split, because the
 * time that iptables-nft takes is quadratic. The number was measured with iptables-nft 1.8.9 and 10 000 chains of 10
 * rules.
 */
export function maxChainsOf({ variant }: Tools): number {
  return variant === "nft" ? 1_000 : Number.POSITIVE_INFINITY;
}

/**
 * Chains in table mangle by which kubelet tells containers which variant it uses: KUBE-IPTABLES-HINT since Kubernetes
 * 1.24, KUBE-KUBELET-CANARY since 1.17.
 */
const hint = /^:KUBE-(?:IPTABLES-HINT|KUBELET-CANARY) /m;
const hintReason = "kubelet's chain KUBE-IPTABLES-HINT or KUBE-KUBELET-CANARY";

/**
 * Finds out which variant of iptables the other programs of this node use, and why; "auto" stands for the variant of
 * the program `iptables`. If kpng used the other variant, rules of both would apply to each packet, in an order that is
 * hard to predict. The hint from kubelet decides; without one, the variant that has more rules is chosen.
 *
 * *Source:* kubernetes-sigs/iptables-wrappers, which chooses the variant in the kube-proxy image. On a node without any
 * rules, that script always chooses iptables-nft, whereas this function chooses the node's own default.
 *
 * It runs iptables-save without `-t`, because this option would make iptables-legacy load a kernel module. A variant
 * that is not installed counts as having no rules.
 */
export async function detectVariant(
  run: RunTool,
): Promise<{ readonly variant: Variant | "auto"; readonly reason: string }> {
  const nft = await look("nft", run);
  if (nft?.hasHint === true) return { variant: "nft", reason: hintReason };
  const legacy = await look("legacy", run);
  if (legacy?.hasHint === true) return { variant: "legacy", reason: hintReason };
  if (nft === undefined || legacy === undefined) return { variant: "auto", reason: "only one variant is installed" };
  const counts = `${nft.ruleCount} rules of iptables-nft, ${legacy.ruleCount} of iptables-legacy`;
  if (nft.ruleCount === legacy.ruleCount) return { variant: "auto", reason: `default of this system: ${counts}` };
  return { variant: nft.ruleCount > legacy.ruleCount ? "nft" : "legacy", reason: counts };
}

/** Reads the rules of one variant and looks for the hint. Returns undefined if the variant is not installed. */
async function look(variant: Variant, run: RunTool) {
  let hasHint = false;
  let ruleCount = 0;
  let isInstalled = false;
  for (const program of [`iptables-${variant}-save`, `ip6tables-${variant}-save`]) {
    const take = readLines((line) => {
      hasHint ||= hint.test(line);
      if (line.startsWith("-")) ruleCount++;
    });
    // The program may be missing, the kernel may lack the family, or this process may lack privileges; in each case the
    // next use of the tools reports the error.
    const end = await run([program], { onOutput: take }).catch(() => undefined);
    isInstalled ||= end?.exitCode === 0;
  }
  return isInstalled ? { hasHint, ruleCount } : undefined;
}

/** Returns a function that accepts text in pieces and calls `onLine` with each complete line. */
function readLines(onLine: (line: string) => void): (text: string) => void {
  let partialLine = "";
  return (text) => {
    const lines = (partialLine + text).split("\n");
    partialLine = lines.pop() ?? "";
    for (const line of lines) onLine(line);
  };
}

/**
 * Returns the tools for each family that this node supports. Without ip6tables, the node serves IPv4 only; without
 * iptables, it cannot serve at all.
 *
 * Errors: IPTABLES_MISSING for IPv4.
 */
export async function openTools(variant: Variant | "auto", run: RunTool, log: Log): Promise<readonly Tools[]> {
  const opened: Tools[] = [];
  const { variant: chosen, reason } =
    variant === "auto" ? await detectVariant(run) : { variant, reason: "--iptables-variant" };
  for (const family of nodeFamilies()) {
    try {
      const tools = await findTools(family, chosen, run);
      log.info("iptables found", { family, version: tools.version, variant: tools.variant, reason });
      opened.push(tools);
    } catch (error) {
      if (family === "v4") throw error;
      log.info("no Services are served in this IP family", { family, reason: reasonOf(error) });
    }
  }
  return opened;
}
