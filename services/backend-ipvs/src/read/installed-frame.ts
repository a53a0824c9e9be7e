import { saysUnsupported } from "@kpng/backend-kit/exec/run-program.ts";
import type { Family } from "@kpng/model/address.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";
import type { ObjectNames } from "../render/object-names.ts";
import { digestComment, type Frame, type FrameJump } from "../render/render-frame.ts";
import type { RunTool } from "./run-tool.ts";

/**
 * The rules in the kernel that belong to one instance in one family. `NodeFrame` reads them with the functions of this
 * file, and `removeObjects` parses them for `--cleanup`. Separate from `renderFrame`, which makes the desired rules.
 */
export interface InstalledFrame {
  /** Rules of our chains and jumps to them, as iptables-save prints them. *Shape:* `mangle -A KPNGIPVS-OUTPUT …`. */
  readonly rules: readonly string[];
  /** Number of the rule in filter INPUT with which Felix, the agent of Calico, sees packets; 0 without Felix. */
  readonly felixRule: number;
}

/** Variants of iptables that may be installed beside the one without a name. Each shows only its own rules. */
const variants = ["nft", "legacy"] as const;

/** Returns the name of a tool of a family. *Shape:* `ip6tables-save`, `ip6tables-legacy-save`. */
export function iptablesTool(family: Family, action: "save" | "restore", variant?: (typeof variants)[number]): string {
  return [family === "v4" ? "iptables" : "ip6tables", ...(variant === undefined ? [] : [variant]), action].join("-");
}

/**
 * Reads the rules of one variant of iptables after the other, with the name of the program that restores them.
 * kube-proxy, or an earlier version of our image, may use another variant than we do. The rules of the variant without
 * a name may be yielded twice. A named variant that is not installed, or that the kernel does not support, is skipped:
 * it has no rules.
 *
 * Errors: READ_FAILED, TOOL_MISSING.
 */
export async function* readVariants(
  runTool: RunTool,
  family: Family,
): AsyncGenerator<{ readonly saved: string; readonly restore: string }> {
  for (const variant of [undefined, ...variants]) {
    const saved = await runTool.read([iptablesTool(family, "save", variant)]).catch((error: unknown) => {
      if (variant === undefined || !isAbsent(error)) throw error;
    });
    if (saved !== undefined) yield { saved, restore: iptablesTool(family, "restore", variant) };
  }
}

/** True if a tool is not installed, or if the kernel does not have what it reads. A lack of rights is another error. */
function isAbsent(error: unknown): boolean {
  if (!(error instanceof BackendIpvsError)) return false;
  if (error.code === "TOOL_MISSING") return true;
  return saysUnsupported(error.message);
}

/** Reads our rules. Errors: READ_FAILED, TOOL_MISSING. */
export async function readFrame(runTool: RunTool, names: ObjectNames, family: Family): Promise<InstalledFrame> {
  return parseFrame(await runTool.read([iptablesTool(family, "save")]), names);
}

/** Parses the output of iptables-save. Pure. */
export function parseFrame(text: string, { prefix }: ObjectNames): InstalledFrame {
  const rules: string[] = [];
  let [table, inputs, felixRule] = ["", 0, 0];
  for (const line of text.split("\n")) {
    if (table === "filter" && line.startsWith("-A INPUT ")) {
      inputs += 1;
      if (line.endsWith(" -j cali-INPUT")) felixRule = inputs;
    }
    if (line.startsWith("*")) table = line.slice(1);
    else if (line.startsWith(`-A ${prefix}-`) || (line.startsWith("-A ") && line.includes(` -j ${prefix}-`))) {
      rules.push(`${table} ${line}`);
    }
  }
  return { rules, felixRule };
}

export function hasJump({ rules }: Pick<InstalledFrame, "rules">, { table, from, to }: FrameJump): boolean {
  return rules.some((rule) => rule.startsWith(`${table} -A ${from} `) && rule.endsWith(` -j ${to}`));
}

/**
 * True if the installed rules agree with a frame in the digest that an earlier run recorded, in the jumps, and in the
 * number of rules. Their text cannot be compared with ours, because iptables prints it in another form.
 */
export function looksLike(installed: Pick<InstalledFrame, "rules">, frame: Frame): boolean {
  const count = frame.chains.reduce((sum, { rules }) => sum + rules.length, 1) + frame.jumps.length;
  return (
    installed.rules.length === count &&
    installed.rules.some((rule) => rule.includes(`"${digestComment(frame)}"`)) &&
    frame.jumps.every((jump) => hasJump(installed, jump))
  );
}
