import type { FamilyPlan, RuleChange, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncMode, SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { DesiredChains, putPlan } from "../diff/desired-chains.ts";
import {
  countRules,
  diffChains,
  diffJumps,
  isEmptyChange,
  listDifferences,
  type RulesetChange,
  splitChange,
  transactionText,
} from "../diff/diff-chains.ts";
import { adoptChains } from "../read/canonical-rule.ts";
import { type InstalledRules, InstalledRulesReader, isReached } from "../read/installed-rules.ts";
import type { RenderOptions, RuleSettings } from "../render/chains.ts";
import { renderFixedChains, renderJumps } from "../render/fixed-chains.ts";
import { type ChainBody, type ChainId, chainId, splitChainId, tables } from "../render/rule.ts";

/** Access to the installed rules of one family. */
export interface Kernel {
  /** Reads the installed rules, and passes the output of iptables-save to `take` in pieces of any length. */
  read(take: (text: string) => void): Promise<void>;
  /** Commits a transaction. Errors: those of `restoreRules`. */
  restore(transaction: string): Promise<void>;
  /** Maximum number of new chains in one transaction; see {@link splitChange}. Default: no limit. */
  readonly maxChains?: number | undefined;
}

interface IptablesRuleSetOptions {
  readonly family: Family;
  readonly settings: RuleSettings;
  readonly kernel: Kernel;
  /**
   * Called after each comparison of all rules, as soon as the desired rules are in force. Must not reject. Default:
   * nothing is done.
   */
  readonly onInstalled?: (() => Promise<void>) | undefined;
  /** Returns whether conntrack is currently liberal; see `RenderOptions`. Default: returns false. */
  readonly isConntrackLiberal?: (() => Promise<boolean>) | undefined;
  /** True if `kernel.restore` writes nothing, because this run only prints or compares rules. Default false. */
  readonly isReadOnly?: boolean | undefined;
}

/**
 * The iptables rules of one family. It brings the installed rules into line with the Service plans.
 *
 * Problem: the kernel compares a new connection with one rule after another, iptables-restore replaces whole chains,
 * and other programs own the built-in chains and may change ours.
 *
 * Idea: each packet meets few rules, each change rewrites few chains, and rules are written exactly as iptables-save
 * prints them, so that they can be compared with the installed rules as text. If a restarted process finds that its
 * rules are equal, it writes nothing; the same comparison detects drift. The path to default/web at 10.96.0.1:80 with
 * two endpoints:
 *
 * ```text
 * nat PREROUTING            jump, placed first once; stays where other programs move it
 *   KPNG-SERVICES           one rule per bucket:  -d 10.96.0.0/24 -j KPNG-IP-10.96.0.0
 *   KPNG-IP-10.96.0.0       bucket of 256 addresses:  -d 10.96.0.1/32 … --dport 80 -j KPNG-SVC-XPGD46QRK7WJZT7O
 *   KPNG-SVC-XPGD46…        mark for masquerade; DNAT to 10.1.1.11:8080 with probability 1/2; DNAT to 10.1.2.11:8080
 * filter FORWARD, OUTPUT    refuse or drop packets that nat left without an endpoint
 * ```
 *
 * When 10.1.1.11 is removed, one chain is rewritten:
 *
 * ```text
 * *nat
 * :KPNG-SVC-XPGD46QRK7WJZT7O - [0:0]        empties the chain
 * -A KPNG-SVC-XPGD46QRK7WJZT7O …            its rules
 * COMMIT
 * ```
 *
 * Packets see a change at the COMMIT of its table. Invariants:
 *
 * - Each table changes as a whole or not at all, and filter changes before nat: when a Service loses its last endpoint,
 *   its packets are refused before nat stops translating them.
 * - A partial sync compares the chains of the touched Services, and their buckets, with the chains committed last. A
 *   full sync or a repair reads the output of iptables-save and compares everything.
 * - A first load of more than `maxChains` chains is divided. Only its last transaction contains jumps, so a packet
 *   meets either all of the rules or none.
 * - After a failure the installed chains are unknown, and the next sync reads them.
 * - If all jumps are present, they are not moved: two programs that both insist on the first position would move their
 *   rules forever.
 *
 * Measured and rejected: kube-proxy's chain for each endpoint (with iptables-nft, loading 1 000 Services × 2 ports × 10
 * endpoints took 23 s with these chains and 0.9 s without them, and one change 58 ms and 24 ms); a single transaction
 * of unlimited size (for each rule, iptables-nft searches all new chains, so the time is quadratic); libiptc (no stable
 * interface, and none for the nft variant). docs/design/iptables.md lists all chains and the reason for the position of
 * each jump.
 */
export class IptablesRuleSet implements RuleSet<IptablesChange> {
  readonly servesWholeAddresses = true;
  readonly #options: IptablesRuleSetOptions;
  #plan: FamilyPlan | undefined;
  /** Options of the last sync or repair in JSON; comparing them shows whether they have changed. */
  #renderText: string | undefined;
  #desiredChains: DesiredChains | undefined;
  /** Installed chains; undefined if they must be read, which is the case at the start and after a failure. */
  #committed: Map<ChainId, ChainBody> | undefined;
  /** Chains that the last full comparison found, as they were before it changed them. */
  #readChains: ReadonlyMap<ChainId, ChainBody> = new Map();

  constructor(options: IptablesRuleSetOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  get desired(): RuleList {
    return listRules(() => this.desiredChains);
  }

  get installed(): RuleList {
    return listRules(() => (this.#options.isReadOnly === true ? this.#readChains : this.committed));
  }

  /** Chains that should be installed; empty before the first sync. */
  get desiredChains(): ReadonlyMap<ChainId, ChainBody> {
    return this.#desiredChains?.bodies ?? new Map();
  }

  /** Installed chains as far as known; empty before the first sync and after a failure. */
  get committed(): ReadonlyMap<ChainId, ChainBody> {
    return this.#committed ?? new Map();
  }

  sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<IptablesChange> {
    this.#plan = plan;
    return this.#sync(plan, touched, touched === "all", stages);
  }

  async repair(): Promise<IptablesChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    return await this.#sync(this.#plan, new Set(), true);
  }

  async isInstalled(): Promise<boolean> {
    return isReached(await this.#read(), this.#options.settings.names);
  }

  /** Puts a plan into effect. With `isCompared`, the installed rules are read, and compared with the desired ones. */
  async #sync(
    plan: FamilyPlan,
    touched: ReadonlySet<ServiceKey> | "all",
    isCompared: boolean,
    stages?: SyncStages,
  ): Promise<IptablesChange> {
    const { settings, isConntrackLiberal = async () => false } = this.#options;
    const options = { ...settings, node: plan.node, isConntrackLiberal: await isConntrackLiberal() };
    const text = JSON.stringify(options);
    const isSameRender = this.#renderText === text;
    const desiredChains =
      (isSameRender ? this.#desiredChains : undefined) ?? new DesiredChains(renderFixedChains(options));
    this.#desiredChains = desiredChains;
    this.#renderText = text;
    // If the options have changed, the jumps may differ. The installed jumps are not kept in memory, so they must be
    // read.
    const changed = await putPlan(plan, isSameRender ? touched : "all", desiredChains, options);
    if (this.#committed === undefined || !isSameRender || isCompared) {
      return await this.#compareAll(desiredChains, options, stages);
    }
    const change = diffChains(this.#committed, desiredChains.bodies, changed);
    return this.#forgetOnFailure(this.#commit(this.#committed, change, "partial", stages));
  }

  /** Compares all installed chains with the desired ones and commits the difference. */
  async #compareAll(
    desiredChains: DesiredChains,
    options: RenderOptions,
    stages?: SyncStages,
  ): Promise<IptablesChange> {
    const { chains, jumps } = await this.#forgetOnFailure(this.#read(desiredChains.bodies));
    const readChains = adoptChains(chains, desiredChains.bodies);
    if (this.#options.isReadOnly === true) this.#readChains = readChains;
    const committed = new Map(readChains);
    const ids = new Set([...committed.keys(), ...desiredChains.bodies.keys()]);
    const jumpLines = diffJumps(jumps, renderJumps(options));
    const ruleset = diffChains(committed, desiredChains.bodies, ids, jumpLines);
    const change = await this.#forgetOnFailure(this.#commit(committed, ruleset, "full", stages));
    await this.#options.onInstalled?.();
    return change;
  }

  /**
   * Forgets the installed rules if `work` fails, because they are then unknown. While `work` is running, inspection
   * shows the previous rules.
   */
  async #forgetOnFailure<Result>(work: Promise<Result>): Promise<Result> {
    try {
      return await work;
    } catch (error) {
      this.#committed = undefined;
      throw error;
    }
  }

  async #read(desiredChains?: ReadonlyMap<ChainId, ChainBody>): Promise<InstalledRules> {
    const { kernel, settings } = this.#options;
    const reader = new InstalledRulesReader(settings.names.prefix, desiredChains);
    await kernel.read((text) => reader.take(text));
    return reader.end();
  }

  async #commit(
    committed: Map<ChainId, ChainBody>,
    ruleset: RulesetChange,
    mode: SyncMode,
    stages?: SyncStages,
  ): Promise<IptablesChange> {
    const { kernel, settings } = this.#options;
    const { maxChains = Number.POSITIVE_INFINITY } = kernel;
    const isEmpty = isEmptyChange(ruleset);
    const pieces = isEmpty ? [] : splitChange(ruleset, committed, settings.names.prefix, maxChains);
    if (!isEmpty) stages?.committing();
    for (const piece of pieces) await kernel.restore(transactionText(piece));
    const change = makeIptablesChange(isEmpty ? "none" : mode, ruleset, committed);
    for (const table of tables) {
      for (const { chain, body } of ruleset[table].puts) committed.set(chainId(table, chain), body);
      for (const chain of ruleset[table].deletes) committed.delete(chainId(table, chain));
    }
    this.#committed = committed;
    return change;
  }
}

/** A change to the iptables rules of one family. Each sync and repair returns one. */
export interface IptablesChange extends RuleChange {
  /** The committed change, for metrics. */
  readonly ruleset: RulesetChange;
}

/**
 * Describes a change for log, metrics and inspection.
 *
 * `committed` contains the chains before the change. The caller modifies them after this call, so this function copies
 * the chains that `differences` needs.
 */
export function makeIptablesChange(
  mode: SyncMode | "none",
  ruleset: RulesetChange,
  committed: ReadonlyMap<ChainId, ChainBody>,
): IptablesChange {
  const before = new Map<ChainId, ChainBody>();
  for (const table of tables) {
    const { puts, deletes } = ruleset[table];
    for (const chain of [...puts.map((put) => put.chain), ...deletes]) {
      const id = chainId(table, chain);
      const body = committed.get(id);
      if (body !== undefined) before.set(id, body);
    }
  }
  const { filter, nat } = ruleset;
  const puts = [...filter.puts, ...nat.puts];
  return {
    mode,
    ruleset,
    fields: {
      chains: puts.length,
      deleted: filter.deletes.length + nat.deletes.length,
      jumps: filter.jumps.length + nat.jumps.length,
      example: puts[0]?.chain,
    },
    differences: () => listDifferences(ruleset, before),
  };
}

/**
 * Lists the rules of chains, sorted by chain. *Shape of a line:* `nat -A KPNG-SERVICES …`.
 *
 * `bodies` is a function, because each request must show the current chains.
 */
export function listRules(bodies: () => ReadonlyMap<ChainId, ChainBody>): RuleList {
  const lines = (): readonly string[] => {
    const sorted = [...bodies()].sort(([a], [b]) => compareText(a, b));
    return sorted.flatMap(([id, body]) => {
      const { table } = splitChainId(id);
      return body.split("\n").flatMap((line) => (line === "" ? [] : [`${table} ${line}`]));
    });
  };
  return {
    count: () => countRules(bodies().values()),
    lines,
    linesOf: (service) => selectService(lines(), service),
  };
}

const servicePortChain = /-(?:SVC|SVL|EXT|FW)-[A-Z2-7]{16}/;

/** Returns the lines that name a Service, and all lines of the chains of its ports to which these lines jump. */
function selectService(lines: readonly string[], service: ServiceKey): readonly string[] {
  const comment = new RegExp(`--comment "?${RegExp.escape(service)}[:" ]`);
  const linesByChain = Map.groupBy(lines, (line) => line.split(" ", 3)[2] ?? "");
  const chosen = new Set(lines.filter((line) => comment.test(line)));
  // The loop also visits the lines that it adds.
  for (const line of chosen) {
    const target = / -[jg] (\S+)/.exec(line)?.[1];
    if (target !== undefined && servicePortChain.test(target))
      for (const one of linesByChain.get(target) ?? []) chosen.add(one);
  }
  return lines.filter((line) => chosen.has(line));
}
