import { saysUnsupported } from "@kpng/backend-kit/exec/iptables-messages.ts";
import type { Family } from "@kpng/model/address.ts";
import type { Batch } from "../diff/diff-objects.ts";
import { parseLink } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError, type ObjectNames, sharedInterface } from "../render/kernel-objects.ts";
import { digestComment, type Frame, type FrameJump, frameLines } from "../render/render-frame.ts";

interface NodeFrameOptions {
  readonly family: Family;
  readonly names: ObjectNames;
  readonly runTool: RunTool;
}

/**
 * Whether a frame is installed.
 *
 * - same: iptables prints what it printed after this process had installed the frame.
 * - alike: an earlier run left the same number of rules, with the same digest and jumps. Any rule may have been
 *   replaced since then, because iptables prints rules in a different form from ours. So the caller installs it again,
 *   but reports no difference.
 * - different: the caller installs it.
 */
interface FrameComparison {
  readonly kind: "same" | "alike" | "different";
  readonly frame: Frame;
  /** Installs the frame. */
  readonly batch: Batch;
}

/** The constant iptables rules of one family in the kernel. */
export class NodeFrame {
  readonly #options: NodeFrameOptions;
  /** Digest of the rules that this process installed last, and the rules as iptables prints them. */
  #known: { readonly digest: string; readonly printed: string } | undefined;

  constructor(options: NodeFrameOptions) {
    this.#options = options;
  }

  /**
   * Compares the rules in the kernel with a frame. Errors: those of `readFrame`; POLICY_BYPASS if Felix would not apply
   * network policies to the connections of this instance.
   */
  async compare(render: (isBesideFelix: boolean) => Frame): Promise<FrameComparison> {
    const installed = await this.#read();
    const isBesideFelix = installed.felixRule > 0;
    const { interfaceName } = this.#options.names;
    if (isBesideFelix && interfaceName !== sharedInterface) {
      const reason = `Calico applies network policies to connections through IPVS only at addresses of ${sharedInterface}, and those of an instance with --service-proxy-name are on ${interfaceName}`;
      throw new BackendIpvsError("POLICY_BYPASS", `${reason}: serve these Services with kpng-nft or kpng-iptables`);
    }
    const frame = render(isBesideFelix);
    const lines = frameLines(frame, (jump) => hasJump(installed, jump), installed.felixRule);
    const command = [iptablesTool(this.#options.family, "restore"), "--noflush", "--wait", "5"];
    return { kind: this.#kindOf(installed, frame), frame, batch: { command, lines } };
  }

  #kindOf(installed: InstalledFrame, frame: Frame): FrameComparison["kind"] {
    if (this.#known === undefined) return looksLike(installed, frame) ? "alike" : "different";
    const { digest, printed } = this.#known;
    return digest === frame.digest && printed === installed.rules.join("\n") ? "same" : "different";
  }

  /**
   * Reads the rules of a frame that was just installed, in the form in which iptables prints them. If another program
   * has changed them in the meantime, they stay unknown, so that the next sync installs them again.
   */
  async installed(frame: Frame): Promise<void> {
    const installed = await this.#read();
    const printed = installed.rules.join("\n");
    this.#known = looksLike(installed, frame) ? { digest: frame.digest, printed } : undefined;
  }

  #read(): Promise<InstalledFrame> {
    const { runTool, names, family } = this.#options;
    return readFrame(runTool, names, family);
  }
}

/** The rules in the kernel that belong to one instance in one family. */
interface InstalledFrame {
  /** Rules of our chains and jumps to them, as iptables-save prints them. *Shape:* `mangle -A KPNGIPVS-OUTPUT …`. */
  readonly rules: readonly string[];
  /** Position in filter INPUT of the rule through which packets reach Felix, the Calico agent; 0 without Felix. */
  readonly felixRule: number;
}

/** Variants of iptables that may be installed in addition to the unnamed one. Each shows only its own rules. */
const variants = ["nft", "legacy"] as const;

/** Returns the name of an iptables tool for a family. *Shape:* `ip6tables-save`, `ip6tables-legacy-save`. */
function iptablesTool(family: Family, action: "save" | "restore", variant?: (typeof variants)[number]): string {
  return [family === "v4" ? "iptables" : "ip6tables", ...(variant === undefined ? [] : [variant]), action].join("-");
}

/**
 * Reads the rules of the iptables variants one after another, and yields each with the name of the program that
 * restores them. kube-proxy, or an earlier version of our image, may use a different variant from ours. The rules of
 * the unnamed variant may be yielded twice. A variant that the kernel does not support, or a named one that is not
 * installed, has no rules and is skipped.
 *
 * Errors: READ_FAILED, TOOL_MISSING.
 */
export async function* readVariants(
  runTool: RunTool,
  family: Family,
): AsyncGenerator<{ readonly saved: string; readonly restore: string }> {
  for (const variant of [undefined, ...variants]) {
    const saved = await runTool.read([iptablesTool(family, "save", variant)]).catch((error: unknown) => {
      if (!isAbsent(error, variant)) throw error;
    });
    if (saved !== undefined) yield { saved, restore: iptablesTool(family, "restore", variant) };
  }
}

/**
 * True if a named variant is not installed, or if the kernel does not support what the tool reads. False if privileges
 * are missing.
 */
function isAbsent(error: unknown, variant: string | undefined): boolean {
  if (!(error instanceof BackendIpvsError)) return false;
  return error.code === "TOOL_MISSING" ? variant !== undefined : saysUnsupported(error.message);
}

/** Reads our rules in the unnamed variant, to which `NodeFrame` writes. Errors: READ_FAILED, TOOL_MISSING. */
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

/** Whether a jump is installed, at any position of its chain. */
export function hasJump({ rules }: Pick<InstalledFrame, "rules">, { table, from, to }: FrameJump): boolean {
  return rules.some((rule) => rule.startsWith(`${table} -A ${from} `) && rule.endsWith(` -j ${to}`));
}

/**
 * True if the installed rules agree with a frame in the digest that an earlier run recorded, in the jumps, and in the
 * number of rules in our chains. The text of the rules cannot be compared with ours, because iptables prints it in a
 * different form. Additional jumps do not count, because an installation would not remove them.
 */
export function looksLike(installed: Pick<InstalledFrame, "rules">, frame: Frame): boolean {
  // 1 for the rule with the digest.
  const count = frame.chains.reduce((sum, { rules }) => sum + rules.length, 1);
  const isOurs = (rule: string): boolean => frame.chains.some((one) => rule.startsWith(`${one.table} -A ${one.name} `));
  return (
    installed.rules.filter(isOurs).length === count &&
    installed.rules.some((rule) => rule.includes(`"${digestComment(frame)}"`)) &&
    frame.jumps.every((jump) => hasJump(installed, jump))
  );
}

/** Returns the commands of `ip` that create an interface for service addresses. */
export function interfaceCreation(name: string): Batch {
  return { command: ["ip", "-batch", "-"], lines: [`link add ${name} type dummy`, `link set ${name} up`] };
}

/**
 * Creates the interface for service addresses. Both families share it and may find it missing at the same time, but
 * only one of them creates it.
 *
 * Errors: COMMIT_REJECTED, e.g. because the kernel does not support dummy interfaces.
 */
export async function createInterface(runTool: RunTool, name: string): Promise<void> {
  const { command, lines } = interfaceCreation(name);
  for (const line of lines) {
    try {
      await runTool.write(command, [line]);
    } catch (error) {
      if (!(error instanceof Error) || !error.message.includes("File exists")) throw error;
    }
  }
}

/** Deletes an interface and its addresses, if it exists. Errors: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING. */
export async function deleteInterface(runTool: RunTool, name: string): Promise<void> {
  if (parseLink(await runTool.read(["ip", "-o", "link", "show"]), name) === "missing") return;
  await runTool.write(["ip", "-batch", "-"], [`link delete ${name}`]);
}
