import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { type IptablesChange, IptablesRuleSet, type Kernel } from "../commit/iptables-rule-set.ts";
import { restoreRules } from "../commit/open-rule-sets.ts";
import { readRules, scanRules } from "../read/installed-rules.ts";
import { findTools, type RunTool, type Tools, type Variant } from "../read/tools.ts";
import { ChainNames } from "../render/chains.ts";

/** The iptables rules of one network namespace of a laboratory, for tests. */
export interface KernelRules {
  readonly tools: Tools;
  readonly kernel: Kernel;
  /** Transactions that were committed. */
  readonly restored: string[];
  /**
   * Opens a rule set that has not read the installed rules yet, as after a restart. `meddle` is called right after each
   * transaction; `read` replaces the output of iptables-save.
   */
  readonly start: (options?: StartOptions) => TestRuleSet;
  /** Returns the output of iptables-save. */
  readonly saved: () => Promise<string>;
  /** Returns the rules in the output of iptables-save, without chains and comments. */
  readonly shown: () => Promise<readonly string[]>;
  readonly run: (command: string) => Promise<string>;
}

interface StartOptions {
  readonly meddle?: (() => Promise<unknown>) | undefined;
  readonly read?: Kernel["read"] | undefined;
  readonly prefix?: string | undefined;
}

/** A rule set that is given views; it plans them as the kit does. */
class TestRuleSet extends IptablesRuleSet {
  syncView(
    view: NodeView,
    touched: ReadonlySet<ServiceKey> | "all" = "all",
    committing: () => void = () => undefined,
  ): Promise<IptablesChange> {
    return this.sync(familyPlan(view, nodePlan({ isLoopbackNodePorts: true })), touched, { committing });
  }
}

/**
 * Adds a network namespace called `name`, without rules. The kernel tests of `commit/` share it, so that each test
 * states only what it changes.
 */
export async function kernelRules(laboratory: Laboratory, name: string, variant: Variant): Promise<KernelRules> {
  await laboratory.add(name);
  const run: RunTool = async (command, { input, onOutput } = {}) => {
    const end = await laboratory.tryRun(name, command, input);
    onOutput?.(end.stdout);
    return end;
  };
  const tools = await findTools("v4", variant, run);
  const restored: string[] = [];
  const kernel: Kernel = {
    read: (take) => scanRules(tools, run, take),
    restore: async (transaction) => {
      restored.push(transaction);
      await restoreRules(transaction, { tools, run });
    },
  };
  const saved = (): Promise<string> => readRules(tools, run);
  return {
    tools,
    kernel,
    restored,
    start: ({ meddle, read = kernel.read, prefix = "KPNG-" } = {}) => {
      const restore = async (transaction: string): Promise<void> => {
        await kernel.restore(transaction);
        await meddle?.();
      };
      const settings = { names: new ChainNames(prefix), masqueradeMark: 0x4000 };
      return new TestRuleSet({ family: "v4", settings, kernel: { ...kernel, read, restore } });
    },
    saved,
    shown: async () => (await saved()).split("\n").filter((line) => line.startsWith("-A ")),
    run: (command) => laboratory.run(name, ["sh", "-c", command]),
  };
}
