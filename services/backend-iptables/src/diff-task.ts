import type { BackendContext } from "@kpng/backend-kit/backend/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { makeFormatObject, type ObjectFormat } from "@kpng/backend-kit/proxy/object-format.ts";
import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Family, families } from "@kpng/model/address.ts";
import type { Task } from "@kpng/process/task.ts";
import { countersInUse } from "./commit/packet-counters.ts";
import { RouteLocalnet } from "./commit/route-localnet.ts";
import { type ChainDifference, listDifferences } from "./diff/list-differences.ts";
import { FamilyRules } from "./family-rules.ts";
import { NodeRules, type RulesOfFamily } from "./node-rules.ts";
import { canonicalRule } from "./read/canonical-rule.ts";
import type { Variant } from "./read/find-tools.ts";
import { openTools } from "./read/open-tools.ts";
import { scanRules } from "./read/read-rules.ts";
import { runTool } from "./read/run-tool.ts";
import { standingRules } from "./read/standing-rules.ts";
import type { Settings } from "./render/settings.ts";

export interface DiffTaskOptions {
  readonly settings: Settings;
  readonly context: BackendContext;
  readonly variant: Variant | "auto";
  /** Longest time that one tool may take, in milliseconds. */
  readonly timeoutMs: number;
  readonly format: "table" | ObjectFormat;
  readonly print: (text: string) => void;
  /** Told whether what stands is what should. */
  readonly onVerdict: (isSame: boolean) => void;
}

type FamilyDifference = ChainDifference & { readonly family: Family };

/**
 * Compares what stands in the kernel with what the view wants, once, prints what a sync would change, and changes nothing.
 *
 * Rejects with IPTABLES_MISSING or IPTABLES_TOO_OLD. Also with NO_VIEW if no watcher answers in time, and SAVE_FAILED or
 * TOOL_TIMEOUT for a look that fails.
 */
export function diffTask(options: DiffTaskOptions): Task {
  const { settings, context, format, print, onVerdict } = options;
  return {
    name: "backend/iptables/diff",
    run: async (signal) => {
      const saved = new Map<Family, string>();
      const opened = await openFamilies(options, saved);
      const found: FamilyDifference[] = [];
      const rules = new NodeRules<RulesOfFamily>(
        settings,
        opened,
        ({ family }, result) => {
          if ("error" in result) return;
          const { chains } = standingRules(saved.get(family) ?? "", settings.names.prefix);
          const listed = listDifferences(result.change, chains, canonicalRule);
          found.push(...listed.map((difference) => ({ family, ...difference })));
        },
        context.log,
      );
      let outcome: { readonly failure?: unknown } | undefined;
      const onChanges = async ({ view }: { readonly view: Parameters<typeof rules.sync>[0] }): Promise<void> => {
        // Who asks waits for an answer: a failure is one, and is not repeated.
        outcome = await rules.sync(view, "all").then(
          () => ({}),
          (failure: unknown) => ({ failure }),
        );
      };
      const following = backendTask({ ...context, name: "iptables-diff", isOnce: true, state: undefined, onChanges });
      await following.run(signal);
      if (outcome === undefined) return;
      if ("failure" in outcome) throw outcome.failure;
      // Whichever family was done first.
      found.sort((a, b) => families.indexOf(a.family) - families.indexOf(b.family));
      print(format === "table" ? formatTable(found) : (await makeFormatObject(format))({ differences: found }, 2));
      onVerdict(found.length === 0);
    },
  };
}

/** Rules whose kernel is read and never written. */
async function openFamilies(
  { settings, variant, timeoutMs, context }: DiffTaskOptions,
  saved: Map<Family, string>,
): Promise<readonly RulesOfFamily[]> {
  const opened = (await openTools(variant, runTool, context.log)).map(async (tools) => {
    const read = async (take: (text: string) => void): Promise<void> => {
      let text = "";
      await scanRules(tools, runTool, timeoutMs, (part) => {
        text += part;
        take(part);
      });
      saved.set(tools.family, text);
    };
    const kernel = { read, restore: async () => undefined };
    const counters = countersInUse(settings.names.prefix, read);
    const { family } = tools;
    const isWanted = settings.isLoopbackNodePorts;
    const localnet =
      family === "v4" ? await RouteLocalnet.readOnly(isWanted, read, new Sysctls(), context.log) : undefined;
    return {
      family,
      counters,
      localnet,
      rules: new FamilyRules(kernel, context.log.with({ family })),
    };
  });
  return Promise.all(opened);
}

/** "+" is what a sync would write, "-" what it would take away. */
function formatTable(differences: readonly FamilyDifference[]): string {
  if (differences.length === 0) return "no difference\n";
  const blocks = differences.flatMap(({ family, table, chain, kind, missing, unwanted }) => [
    `${family} ${table} ${chain}: ${explain[kind]}`,
    ...unwanted.map((rule) => `- ${rule}`),
    ...missing.map((rule) => `+ ${rule}`),
  ]);
  return `${blocks.join("\n")}\n`;
}

const explain: Readonly<Record<ChainDifference["kind"], string>> = {
  missing: "the chain is missing",
  unwanted: "nobody wants the chain",
  changed: "rules differ",
  order: "the rules stand in another order",
  jumps: "jumps to our chains differ",
};
