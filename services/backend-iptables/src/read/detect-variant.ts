import type { Variant } from "./find-tools.ts";
import type { RunTool } from "./run-tool.ts";

/** The variant that `--iptables-variant auto` chooses, and why. */
interface DetectedVariant {
  /** `auto`: the program `iptables`, whichever variant it is. */
  readonly variant: Variant | "auto";
  readonly reason: string;
}

/** Rules of both families that the tools of one variant show. */
interface VariantRules {
  readonly hasHint: boolean;
  readonly ruleCount: number;
}

/**
 * Chains in table mangle with which kubelet tells containers its variant: KUBE-IPTABLES-HINT since Kubernetes 1.24,
 * KUBE-KUBELET-CANARY since 1.17.
 */
const hint = /^:KUBE-(?:IPTABLES-HINT|KUBELET-CANARY) /m;

const timeoutMs = 30_000;

/**
 * Finds out which variant of iptables the other programs of this node use. `openTools` calls it for
 * `--iptables-variant auto`, and logs the result. If kpng used the other variant, rules of both would apply to each
 * packet, in an order that is hard to predict. First it looks for the hint of kubelet, then for the variant with more
 * rules. Separate from `findTools`, which looks for programs and reads no rules.
 *
 * *Source:* kubernetes-sigs/iptables-wrappers, which chooses the variant in the image of kube-proxy. Unlike it, a node
 * without any rules gets its own default and not always iptables-nft.
 *
 * Runs iptables-save without `-t`, which in iptables-legacy would load a kernel module. A variant that is not installed
 * has no rules.
 */
export async function detectVariant(run: RunTool): Promise<DetectedVariant> {
  const nft = await look("nft", run);
  if (nft?.hasHint === true) return { variant: "nft", reason: "kubelet's chain KUBE-IPTABLES-HINT" };
  const legacy = await look("legacy", run);
  if (legacy?.hasHint === true) return { variant: "legacy", reason: "kubelet's chain KUBE-IPTABLES-HINT" };
  if (nft === undefined || legacy === undefined) return { variant: "auto", reason: "only one variant is installed" };
  const counts = `${nft.ruleCount} rules of iptables-nft, ${legacy.ruleCount} of iptables-legacy`;
  if (nft.ruleCount === legacy.ruleCount) return { variant: "auto", reason: `default of this system: ${counts}` };
  return { variant: nft.ruleCount > legacy.ruleCount ? "nft" : "legacy", reason: counts };
}

/** Reads the rules of one variant and looks for the hint. Returns undefined if the variant is not installed. */
async function look(variant: Variant, run: RunTool): Promise<VariantRules | undefined> {
  let hasHint = false;
  let ruleCount = 0;
  let isInstalled = false;
  for (const program of [`iptables-${variant}-save`, `ip6tables-${variant}-save`]) {
    const take = readLines((line) => {
      hasHint ||= hint.test(line);
      if (line.startsWith("-")) ruleCount++;
    });
    // Errors are those of a missing program, of a family that the kernel lacks, or of a lack of rights: the next use of
    // the tools reports them.
    const end = await run([program], { timeoutMs, onOutput: take }).catch(() => undefined);
    if (end?.stdout !== undefined) take(end.stdout);
    isInstalled ||= end?.exitCode === 0;
  }
  return isInstalled ? { hasHint, ruleCount } : undefined;
}

/** Returns a function that takes text in pieces and calls `onLine` with each complete line. */
function readLines(onLine: (line: string) => void): (text: string) => void {
  let rest = "";
  return (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) onLine(line);
  };
}
