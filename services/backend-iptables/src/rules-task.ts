import type { BackendContext } from "@kpng/backend-kit/backend/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { applySettings } from "@kpng/backend-kit/conntrack/apply-settings.ts";
import type { KernelSetting } from "@kpng/backend-kit/conntrack/conntrack-settings.ts";
import { hasUdpPort } from "@kpng/backend-kit/conntrack/udp-frontends.ts";
import { loadView } from "@kpng/backend-kit/disk/load-view.ts";
import type { StateOptions } from "@kpng/backend-kit/disk/state-folder.ts";
import { ProxyMetrics } from "@kpng/backend-kit/observe/proxy-metrics.ts";
import { touchedServices } from "@kpng/backend-kit/state/touched-services.ts";
import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import type { SyncStages, SyncUpdate } from "@kpng/backend-kit/types/sync-update.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { runWithMain } from "@kpng/process/run/run-tasks.ts";
import type { Task } from "@kpng/process/task.ts";
import { type AfterSync, afterSync } from "./after-sync.ts";
import { countersInUse, PacketCounters } from "./commit/packet-counters.ts";
import { restoreRules } from "./commit/restore-rules.ts";
import { RouteLocalnet } from "./commit/route-localnet.ts";
import type { RulesetChange } from "./diff/diff-chains.ts";
import { driftTask } from "./drift-task.ts";
import { FamilyRules } from "./family-rules.ts";
import { type FamilyParts, NodeRules } from "./node-rules.ts";
import { createCounterMetrics } from "./observe-counters.ts";
import { createRulesMetrics } from "./observe-rules.ts";
import { maxChainsOf, type Variant } from "./read/find-tools.ts";
import { openTools } from "./read/open-tools.ts";
import { scanRules } from "./read/read-rules.ts";
import { runTool } from "./read/run-tool.ts";
import type { Settings } from "./render/settings.ts";
import { RuleRecord } from "./rule-record.ts";

export interface RulesTaskOptions {
  readonly settings: Settings;
  readonly context: BackendContext;
  readonly variant: Variant | "auto";
  /** How long the xtables lock is waited for, in seconds. */
  readonly lockSeconds: number;
  /** Longest time that one tool may take, in milliseconds. */
  readonly timeoutMs: number;
  /** Time between two looks at what stands in the kernel, in milliseconds; 0 for never. */
  readonly driftMs: number;
  /** Shortest time between two syncs, in milliseconds. */
  readonly minIntervalMs: number;
  /** Where the last view is kept. Default nowhere. */
  readonly state?: StateOptions | undefined;
  /** What the kernel's table of flows is to be; see `conntrack-settings.ts`. */
  readonly conntrack: readonly KernelSetting[];
  /** Takes the transactions instead of the kernel, which is then left as it is. */
  readonly print?: ((text: string) => void) | undefined;
}

/**
 * Follows the view and keeps the node's rules at it.
 *
 * Rejects if the node cannot have such rules at all (IPTABLES_MISSING, IPTABLES_TOO_OLD): to wait would not mend it.
 */
export function rulesTask(options: RulesTaskOptions): Task {
  const { context, driftMs, minIntervalMs } = options;
  const name = "iptables";
  const parts: FamilyParts[] = [];
  const measure = createRulesMetrics(context.metrics, () => parts);
  const { log } = context;
  const rules = new NodeRules(
    options.settings,
    parts,
    (of, result, elapsedMs, cause) => {
      measure.onSynced(of, result, elapsedMs, cause);
      if (cause === "repair" && !("error" in result)) {
        of.record?.looked(result.mode === "none" ? undefined : result.change);
      }
      if ("error" in result || result.mode === "none") return;
      const fields = describeChange(result.change);
      const { family } = of;
      if (cause === "repair") log.info("rules repaired", { family, ...fields });
      else log.debug("rules committed", { family, mode: result.mode, ...fields, elapsedMs: Math.round(elapsedMs) });
    },
    log,
  );
  const isDry = options.print !== undefined;
  const after = afterSync(options.settings.nodePortAddresses, context);
  let isObserved = false;
  const observeCounters = (): void => {
    const names = parts.map(({ counters }) => counters?.names).find((each) => each !== undefined);
    if (isObserved || names === undefined) return;
    isObserved = true;
    createCounterMetrics(context.metrics, names, runTool);
  };
  let isFirst = !isDry;
  const onChanges = async (update: SyncUpdate, signal: AbortSignal, stages: SyncStages): Promise<void> => {
    const touched = update.mode === "full" ? "all" : touchedServices(update.changes);
    await rules.sync(update.view, touched, () => stages.committing());
    // There may have been nothing to tell the kernel.
    stages.committing();
    // After the first rules: the kernel loads what the settings are of with the first rule that needs it.
    if (isFirst) await applySettings(options.conntrack, { sysctls: new Sysctls(), log });
    isFirst = false;
    observeCounters();
    if (!isDry) await after.run(update, signal);
  };
  const inUse = () => parts.map(({ family }) => family);
  const observers = [new ProxyMetrics({ registry: context.metrics, families: inUse })];
  const hasRules = async () => {
    try {
      return await rules.stand();
    } catch (error) {
      // Who cannot read cannot write either: the sync that follows fails with the same words, and is repeated.
      log.debug("rules could not be read", { reason: reasonOf(error) });
      return false;
    }
  };
  const ruleSets = () => parts.flatMap(({ family, rules: of, record }) => record?.state(family, of) ?? []);
  const { state } = options;
  const following = backendTask({ ...context, name, onChanges, minIntervalMs, observers, state, hasRules, ruleSets });
  const drift = driftTask({ rules, driftMs, log, health: context.health, metrics: context.metrics });
  return {
    name: following.name,
    run: async (signal) => {
      parts.push(...(await openFamilies(options)));
      context.proxyHealth?.setFamilies(inUse());
      measure.begin();
      await seed(after, options);
      const beside = [...(driftMs > 0 ? [drift] : []), ...(isDry ? [] : [after.serving])];
      await runWithMain(following, beside, signal);
    },
  };
}

/** Flows of what went while this program was not there are stale too, and only the disk knows what there was. */
async function seed(after: AfterSync, { state, context }: RulesTaskOptions): Promise<void> {
  if (state?.folder === undefined) return;
  const { folder, maxAgeMs } = state;
  const { nodeName, serviceProxyName } = context;
  const loaded = await loadView({
    folder,
    maxAgeMs,
    nodeName,
    serviceProxyName,
    nowMs: Date.now(),
    only: hasUdpPort,
  });
  if (loaded.kind === "view") after.seed(loaded.update.view);
}

async function openFamilies(options: RulesTaskOptions): Promise<readonly FamilyParts[]> {
  const { settings, context, variant, timeoutMs, lockSeconds, print } = options;
  const { log } = context;
  const parts: FamilyParts[] = [];
  for (const tools of await openTools(variant, runTool, log)) {
    const { family } = tools;
    const restore = async (transaction: string): Promise<void> => {
      if (print !== undefined) print(`# ${tools.restore} --noflush\n${transaction}`);
      else await restoreRules(transaction, { tools, run: runTool, lockSeconds, timeoutMs });
    };
    const read = (take: (text: string) => void) => scanRules(tools, runTool, timeoutMs, take);
    const record = new RuleRecord();
    const kernel = record.watch({ read, restore, maxChains: maxChainsOf(tools) });
    const { prefix } = settings.names;
    const counters =
      print === undefined ? new PacketCounters({ prefix, run: runTool, restore, log }) : countersInUse(prefix, read);
    const isWanted = settings.isLoopbackNodePorts;
    const openLocalnet = print === undefined ? RouteLocalnet.open : RouteLocalnet.readOnly;
    const localnet = family === "v4" ? await openLocalnet(isWanted, read, new Sysctls(), log) : undefined;
    parts.push({ family, tools, counters, localnet, record, rules: new FamilyRules(kernel, log.with({ family })) });
  }
  return parts;
}

function describeChange({ filter, nat }: RulesetChange): Readonly<Record<string, number | string | undefined>> {
  const puts = [...filter.puts, ...nat.puts];
  return {
    chains: puts.length,
    deleted: filter.deletes.length + nat.deletes.length,
    jumps: filter.jumps.length + nat.jumps.length,
    example: puts[0]?.chain,
  };
}
