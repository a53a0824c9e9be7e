import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { restoreRules } from "../commit/restore-rules.ts";
import { FamilyRules, type Kernel } from "../family-rules.ts";
import { findTools, type Tools, type Variant } from "../read/find-tools.ts";
import { readRules, scanRules } from "../read/read-rules.ts";
import type { RunTool } from "../read/run-tool.ts";

/** Rules of one namespace of a laboratory, with a list of what was run. */
export interface KernelRules {
  readonly tools: Tools;
  readonly kernel: Kernel;
  /** Transactions that were handed to the kernel. */
  readonly restored: string[];
  /**
   * A backend that knows nothing yet, as after a restart. `meddle` is called right after each transaction; `read` gives
   * what another iptables-save would print.
   */
  readonly start: (meddle?: () => Promise<unknown>, read?: Kernel["read"]) => FamilyRules;
  /** What iptables-save prints. */
  readonly saved: () => Promise<string>;
  /** The same, rules only. */
  readonly shown: () => Promise<readonly string[]>;
  readonly run: (command: string) => Promise<string>;
}

const silent = { error() {}, info() {}, debug() {}, with: () => silent };

export async function kernelRules(laboratory: Laboratory, name: string, variant: Variant): Promise<KernelRules> {
  await laboratory.add(name);
  const run: RunTool = (command, { input }) => laboratory.tryRun(name, command, input);
  const tools = await findTools("v4", variant, run);
  if ("missing" in tools) throw new Error(tools.missing);
  const restored: string[] = [];
  const kernel: Kernel = {
    read: (take) => scanRules(tools, run, 30_000, take),
    restore: async (transaction) => {
      restored.push(transaction);
      await restoreRules(transaction, { tools, run, lockSeconds: 5, timeoutMs: 30_000 });
    },
  };
  const saved = (): Promise<string> => readRules(tools, run, 30_000);
  return {
    tools,
    kernel,
    restored,
    start: (meddle, read = kernel.read) => {
      const restore = async (transaction: string): Promise<void> => {
        await kernel.restore(transaction);
        await meddle?.();
      };
      return new FamilyRules({ ...kernel, read, restore }, silent);
    },
    saved,
    shown: async () => (await saved()).split("\n").filter((line) => line.startsWith("-A ")),
    run: (command) => laboratory.run(name, ["sh", "-c", command]),
  };
}
