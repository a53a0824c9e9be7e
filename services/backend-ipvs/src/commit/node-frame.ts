import type { Family } from "@kpng/model/address.ts";
import type { Batch } from "../diff/batches.ts";
import { hasJump, type InstalledFrame, iptablesTool, looksLike, readFrame } from "../read/installed-frame.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";
import { type ObjectNames, sharedInterface } from "../render/object-names.ts";
import { type Frame, frameText } from "../render/render-frame.ts";

interface NodeFrameOptions {
  readonly family: Family;
  readonly names: ObjectNames;
  readonly runTool: RunTool;
}

/**
 * Whether a frame is installed. "alike": rules of an earlier run have its digest, jumps and number, but any of them may
 * have been replaced since, because iptables prints rules in another form than ours.
 */
interface FrameComparison {
  readonly kind: "same" | "alike" | "different";
  readonly frame: Frame;
  /** Installs the frame. */
  readonly batch: Batch;
}

/**
 * The constant iptables rules of one family in the kernel. `IpvsRuleSet` compares them in each full sync and repair,
 * and installs them the first time and where they differ. Separate from it, because the rules do not depend on
 * Services.
 */
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
    const text = frameText(frame, (jump) => hasJump(installed, jump), installed.felixRule);
    const command = [iptablesTool(this.#options.family, "restore"), "--noflush", "--wait", "5"];
    return { kind: this.#kindOf(installed, frame), frame, batch: { command, lines: text.trimEnd().split("\n") } };
  }

  #kindOf(installed: InstalledFrame, frame: Frame): FrameComparison["kind"] {
    if (this.#known === undefined) return looksLike(installed, frame) ? "alike" : "different";
    const { digest, printed } = this.#known;
    return digest === frame.digest && printed === installed.rules.join("\n") ? "same" : "different";
  }

  /** Reads how the kernel prints a frame that was installed. */
  async installed(frame: Frame): Promise<void> {
    this.#known = { digest: frame.digest, printed: (await this.#read()).rules.join("\n") };
  }

  #read(): Promise<InstalledFrame> {
    const { runTool, names, family } = this.#options;
    return readFrame(runTool, names, family);
  }
}
