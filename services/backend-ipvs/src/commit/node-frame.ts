import type { Family } from "@kpng/model/address.ts";
import type { Batch } from "../diff/batches.ts";
import { hasJump, type InstalledFrame, iptablesTool, looksLike, readFrame } from "../read/installed-frame.ts";
import type { RunTool } from "../read/run-tool.ts";
import type { ObjectNames } from "../render/object-names.ts";
import { type Frame, frameText } from "../render/render-frame.ts";

/** Options of {@link NodeFrame}. */
export interface NodeFrameOptions {
  readonly family: Family;
  readonly names: ObjectNames;
  readonly runTool: RunTool;
}

/**
 * The constant iptables rules of one family in the kernel. `IpvsRuleSet` compares them in each full sync and repair,
 * and installs them where they differ. Separate from it, because the rules do not depend on Services.
 */
export class NodeFrame {
  readonly #options: NodeFrameOptions;
  /** Digest of the rules of the last comparison, and the rules as the kernel prints them. */
  #known: { readonly digest: string; readonly printed: string } | undefined;

  constructor(options: NodeFrameOptions) {
    this.#options = options;
  }

  /** Returns the batch that installs a frame; undefined if it is installed. Errors: those of `readFrame`. */
  async compare(frame: Frame): Promise<Batch | undefined> {
    const installed = await this.#read();
    const printed = installed.rules.join("\n");
    const isSame = this.#known?.digest === frame.digest ? this.#known.printed === printed : looksLike(installed, frame);
    if (isSame) {
      this.#known = { digest: frame.digest, printed };
      return undefined;
    }
    const text = frameText(frame, (jump) => hasJump(installed, jump));
    const command = [iptablesTool(this.#options.family, "restore"), "--noflush", "--wait", "5"];
    return { command, lines: text.trimEnd().split("\n") };
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
