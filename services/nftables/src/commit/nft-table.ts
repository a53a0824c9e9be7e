import type { FamilyPlan, RuleChange, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { NftablesConnection } from "../netlink/nftables-connection.ts";
import type { BatchStep, TableId } from "../netlink/transaction.ts";
import {
  compareRules,
  differentChains,
  type PresentTable,
  type RulesByChain,
  readOwnObjects,
  readRules,
  readTable,
} from "../read/read-table.ts";
import { ServiceElements } from "../render/service-elements.ts";
import {
  type Frame,
  isStickyPick,
  natHook,
  pickChainAddition,
  renderFrame,
  renderHooks,
  renderPicks,
} from "../render/skeleton.ts";
import { listRules, makeNftChange, type TableChange } from "./format-rules.ts";
import { divideSteps, fillElements, planChange, planInstall, putAll, type TablePlan } from "./plan-table.ts";
import { applyNft } from "./run-nft.ts";

/** Settings of the tables of one instance, one for each family. */
export interface TableSettings {
  /** Name of the tables. */
  readonly table: string;
  /** Bit of the packet mark that requests masquerade, 0 to 31. */
  readonly masqueradeBit: number;
  /** Maximum number of clients remembered for one Service port with affinity. */
  readonly maxClients: number;
}

/** Options of {@link NftTable}. */
export interface NftTableOptions extends TableSettings {
  readonly family: Family;
  readonly connection: NftablesConnection;
}

/** The installed table after a successful call. */
interface InstalledTable {
  readonly picks: ReadonlySet<string>;
  readonly rules: RulesByChain;
  readonly frame: Frame;
}

/**
 * Size of a transaction in the first load, in bytes. Smaller transactions take longer in total, larger ones need more
 * memory.
 */
const chunkBytes = 256 * 1024;

/** Upper bound for the size of a transaction without its steps, in bytes. */
const transactionOverhead = 1024;

/**
 * The table of one family in the kernel: its desired contents, its installed contents, and how one is turned into the
 * other.
 *
 * Problem: with rules for each Service, every packet would have to pass all rules, and the kernel would replace whole
 * lists of rules at each change. kube-proxy's design, a map for each Service, makes one changed endpoint cost 4.2 s
 * with 5 000 Services, because nft lists the whole table.
 *
 * Idea: the rules are constant (`skeleton.ts`), and Services are elements of maps that the rules look up. The example
 * is default/web at 10.96.0.1:80 with three endpoints, as endpoint set 5:
 *
 * ```text
 * frontends   10.96.0.1 . tcp . 80 : kind masqueradeUnlessPod, set 5, count 3      one number of 32 bits
 * picks       3 : goto pick_3                                                      shared by all sets of three
 * slots       set 5 . 0 : 10.1.0.7 . 8080
 *             set 5 . 1 : 10.1.0.8 . 8080
 *             set 5 . 2 : 10.1.0.9 . 8080
 *
 * packet ─► services ─► balance_frontends ─► pick ─► pick_3 ─► dnat to slot (numgen random mod 3)
 *           number to   masquerade?                  second rule: slot 0
 *           meta priority
 * ```
 *
 * When 10.1.0.7 goes, the last endpoint takes its slot. One transaction adds pick_2 if it is missing, changes slot 0 to
 * 10.1.0.9, deletes slot 2, and changes the frontend's count to 2. The elements are written through netlink. The
 * program `nft` reads all tables at each run, so it installs only rules: the skeleton, and chains for affinity and
 * source ranges.
 *
 * A change becomes visible when the kernel advances its ruleset generation at the end of the transaction. Each lookup
 * reads the generation again, so one packet may see the old frontend and then the new slots. Hence:
 *
 * - The set id and the count are stored as one number. If they were in two maps, a packet could combine the id from
 *   before a transaction with the count from after it.
 * - `pick_N` has a second rule for slot 0, which is the last slot to be removed. A released set id is reused after all
 *   others, so that a packet that is being processed never gets an endpoint of another Service.
 * - Before Linux 6.17, a lookup during a replacement may find neither the old nor the new element. Rules with such
 *   lookups are therefore written twice (docs/design/nft.md).
 * - The chains and slots that elements refer to are installed before these elements, and removed after them.
 * - The hooks are installed last, because a first load takes many transactions and packets must not meet a half-filled
 *   table. A later transaction that exceeds the socket's limit is divided in such a way that each frontend always leads
 *   to either old or new endpoints (`divideSteps`).
 * - After a failure `#installed` is undefined, and the next call reads and compares the whole table.
 *
 * Rejected alternatives, with the cost of one changed endpoint: a verdict map from frontends to chains (0.23 ms with 2
 * 000 elements, 0.44 ms with 10 000, because the kernel validates every chain that the map leads to; the data maps take
 * 0.08 to 0.14 ms with either number); elements through libnftables (13.9 ms if other programs have 5 000 sets, because
 * the library caches all of them); the packet mark instead of the priority (marks belong to firewalls and network
 * plugins).
 */
export class NftTable implements RuleSet {
  readonly servesWholeAddresses = true;
  readonly #options: NftTableOptions;
  readonly #id: TableId;
  #plan: FamilyPlan | undefined;
  #elements: ServiceElements;
  /**
   * The installed state; undefined if it is unknown, in which case the next call reads the table and writes all rules
   * again.
   */
  #installed: InstalledTable | undefined;
  /** Result of `NftablesConnection.generation` at the last comparison that found no difference. */
  #checkedGeneration: number | undefined;

  constructor(options: NftTableOptions) {
    this.#options = options;
    this.#id = { family: options.family, name: options.table };
    this.#elements = new ServiceElements(this.#id, options.maxClients);
  }

  get family(): Family {
    return this.#id.family;
  }

  get desired(): RuleList {
    return listRules(this.family, () => this.#elements);
  }

  /**
   * The same rules as {@link desired} after a successful call, which repairs whatever differs; none after a failed call,
   * because the kernel's rules are then unknown.
   */
  get installed(): RuleList {
    return listRules(this.family, () => (this.isKnown ? this.#elements : undefined));
  }

  /** Whether the installed rules are known; if not, the next sync is a full one. */
  get isKnown(): boolean {
    return this.#installed !== undefined;
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    this.#plan = plan;
    // After a failure, the kit passes "all"; this does not rely on it.
    if (touched === "all" || !this.isKnown) {
      return makeNftChange(this.family, "full", await this.#syncAll(plan, stages));
    }
    for (const key of touched) this.#elements.put(key, plan.service(key));
    return makeNftChange(this.family, "partial", await this.#commitInUse(stages));
  }

  async repair(): Promise<RuleChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    return makeNftChange(this.family, "full", await this.#repair(this.#plan));
  }

  /**
   * Whether packets reach the table through every base chain, except those of whole addresses. The base chains are the
   * last to be installed in a first load, so their presence shows that the load was completed.
   */
  async isInstalled(): Promise<boolean> {
    const { connection } = this.#options;
    const present = await readOwnObjects(connection, this.#id);
    if (present === undefined) return false;
    return differentChains(renderHooks(this.#id), await readRules(connection, this.#id, present)).length === 0;
  }

  async close(): Promise<void> {
    this.#options.connection.close();
  }

  /**
   * Makes the table contain exactly the objects that the plan needs. Correct elements stay; rules are written again
   * unless they are known to be correct, in which case empty chains and sets of other programs stay. Everything is read
   * before anything is written, so that nothing has changed if reading fails.
   */
  async #syncAll(plan: FamilyPlan, stages: SyncStages): Promise<TableChange> {
    this.#checkedGeneration = undefined;
    const present = await readTable(this.#options.connection, this.#id);
    const frame = renderFrame({ ...this.#options, node: plan.node });
    const before = this.#installed?.frame;
    const isSameFrame = frame.skeleton === before?.skeleton && frame.hooks === before.hooks;
    if (!isSameFrame || !this.#hasRules(present.rules)) return await this.#install(plan, frame, present, stages);
    await putAll(this.#elements, plan);
    await this.#elements.table.compareWith(present.elements);
    return await this.#commitInUse(stages);
  }

  async #repair(plan: FamilyPlan): Promise<TableChange> {
    const { connection } = this.#options;
    const generation = await connection.generation();
    if (this.isKnown && generation === this.#checkedGeneration) return nothing;
    this.#checkedGeneration = undefined;
    const present = await readTable(connection, this.#id);
    if (!this.#hasRules(present.rules)) {
      return await this.#install(plan, renderFrame({ ...this.#options, node: plan.node }), present);
    }
    const { table } = this.#elements;
    await table.compareWith(present.elements);
    // `ElementTable` keeps no comments of committed elements, so elements that have to be put back get their comments
    // from the plan.
    if (table.changes().length > 0) await putAll(this.#elements, plan);
    const change = await this.#commitInUse();
    // It was read before the table, so a change during the comparison is found by the next one.
    if (change.elements.length === 0) this.#checkedGeneration = generation;
    return change;
  }

  /** Whether `rules` are equal to the rules that the last successful call installed. */
  #hasRules(rules: RulesByChain): boolean {
    return this.#installed !== undefined && compareRules(this.#installed.rules, rules).length === 0;
  }

  /** Writes all rules, and the elements that differ from those in the kernel. */
  async #install(plan: FamilyPlan, frame: Frame, present: PresentTable, stages?: SyncStages): Promise<TableChange> {
    const { connection, maxClients } = this.#options;
    this.#elements = new ServiceElements(this.#id, maxClients, plan.node.podTraffic);
    await fillElements(this.#elements, plan, present.elements);
    stages?.committing();
    this.#installed = undefined;
    await applyNft(frame.skeleton);
    const tablePlan = await planInstall(this.#elements, present, frame);
    // The hooks are installed last. As long as they are missing, no packet uses the sets, even if an earlier first load
    // was interrupted.
    await this.#write(tablePlan, !present.rules.has(natHook));
    const rules = await readRules(connection, this.#id);
    // If another program has changed rules since they were written, they stay unknown, so that the next call writes
    // them again.
    if (differentChains(`${frame.skeleton}${this.#commandsOf(tablePlan)}`, rules).length === 0) {
      this.#installed = { picks: tablePlan.picks, rules, frame };
    }
    return { elements: tablePlan.elements, chains: compareRules(present.rules, rules) };
  }

  /** Commits the changes since the last commit to a table that packets already use. */
  async #commitInUse(stages?: SyncStages): Promise<TableChange> {
    const { connection } = this.#options;
    const { table, chains } = this.#elements;
    const installed = this.#installed;
    if (installed === undefined) throw new Error("commit before the first full sync");
    const plan = planChange(this.#elements, installed.picks);
    const { picks, elements } = plan;
    const written = chains.written.map(({ name }) => name);
    const ours = new Set([...picks, ...written, ...chains.removed.map(({ name }) => name)]);
    const commands = this.#commandsOf(plan);
    if (elements.length === 0 && commands === "") {
      table.committed();
      return nothing;
    }
    stages?.committing();
    this.#installed = undefined;
    await this.#write(plan, false);
    if (commands === "") {
      this.#installed = installed;
      return { elements, chains: [] };
    }
    const rules = await readRules(connection, this.#id);
    const changed = compareRules(installed.rules, rules);
    // If another program has changed rules since the last comparison, `#installed` stays undefined, so that the next
    // call writes all rules again.
    if (changed.every((name) => ours.has(name)) && differentChains(commands, rules).length === 0) {
      this.#installed = { ...installed, picks: new Set([...installed.picks, ...picks]), rules };
    }
    // A rule with another anonymous map has the same expressions, so rules alone do not show its change.
    return { elements, chains: [...new Set([...changed, ...written])].sort() };
  }

  /** Returns the commands for the chains that a plan changes. */
  #commandsOf({ picks, additions, last }: TablePlan): string {
    return `${renderPicks(this.#id, picks)}${additions}${last}`;
  }

  /** Makes the changes of a plan. Packets do not use the table yet if `isUnused`. */
  async #write({ picks, additions, elements, last }: TablePlan, isUnused: boolean): Promise<void> {
    const commands = `${renderPicks(this.#id, [...picks].filter(isStickyPick))}${additions}`;
    if (commands !== "") await applyNft(commands);
    // nft cannot add the other pick chains.
    const plain = [...picks].filter((name) => !isStickyPick(name));
    const chains = plain.map((name) => pickChainAddition(this.#id.family, name));
    await this.#send([...chains, ...elements], isUnused);
    if (last !== "") await applyLast(last);
    this.#elements.chains.committed();
    this.#elements.table.committed();
  }

  /**
   * Commits steps in one transaction if the socket can send it, or in many small ones if no packet uses the table yet
   * (`isUnused`).
   */
  async #send(steps: readonly BatchStep[], isUnused: boolean): Promise<void> {
    const { connection } = this.#options;
    const limit = connection.maxTransactionBytes - transactionOverhead;
    for (const part of divideSteps(steps, isUnused ? Math.min(chunkBytes, limit) : limit)) {
      await connection.commit(this.#id, part);
    }
  }
}

/**
 * Applies `TablePlan.last`. If that is refused, only the deletion of chains is left to the next call, which the thrown
 * error makes a full sync: before Linux 6.4 (628bd3e49cba, also in later releases of older series), a chain to which an
 * anonymous map led counts as used until some time after the rule with that map is deleted.
 */
async function applyLast(commands: string): Promise<void> {
  try {
    await applyNft(commands);
  } catch (error) {
    await applyNft(commands.replaceAll(/^delete chain .*\n(?!add )/gm, "")).catch(() => undefined);
    throw error;
  }
}

const nothing: TableChange = { elements: [], chains: [] };
