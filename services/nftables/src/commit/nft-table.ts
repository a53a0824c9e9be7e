import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { NftablesConnection } from "../netlink/nftables-connection.ts";
import type { BatchStep, TableId } from "../netlink/transaction.ts";
import {
  compareRules,
  differentChains,
  type RulesByChain,
  readElements,
  readOwnObjects,
  readRules,
} from "../read/read-table.ts";
import type { SharedSetChange } from "../render/element-table.ts";
import { ServiceElements } from "../render/service-elements.ts";
import { natHook, pickChainAddition, renderHooks, renderSkeleton } from "../render/skeleton.ts";
import {
  countOfPick,
  divideSteps,
  type Frame,
  fillElements,
  type PresentTable,
  planChange,
  planInstall,
  putAll,
  renderPick,
} from "./plan-table.ts";
import { applyNft } from "./run-nft.ts";

/** Options of {@link NftTable}. */
export interface NftTableOptions {
  readonly family: Family;
  /** Name of the table. */
  readonly table: string;
  /** Bit of the packet mark that requests masquerade, 0 to 31. */
  readonly masqueradeBit: number;
  readonly connection: NftablesConnection;
  /** Maximum number of clients remembered for one Service port with affinity. */
  readonly maxClients: number;
}

/** Changes that one call made to a table. */
export interface TableChange {
  readonly elements: readonly SharedSetChange[];
  /** Chains whose rules changed. */
  readonly chains: readonly string[];
}

/** A frame with its two parts concatenated in `text`. */
interface RenderedFrame extends Frame {
  readonly text: string;
}

/** The installed table after a successful call. */
interface InstalledTable {
  readonly picks: ReadonlySet<string>;
  readonly rules: RulesByChain;
  readonly frame: RenderedFrame;
}

/** The objects of a table that does not exist. */
export const noObjects: PresentTable["objects"] = { chains: [], hooks: new Map(), sets: [] };

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
export class NftTable {
  readonly #options: NftTableOptions;
  readonly #id: TableId;
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

  /** The elements and chains that the table should have. */
  get elements(): ServiceElements {
    return this.#elements;
  }

  /** Whether the installed rules are known; if not, the next call must be {@link syncAll} or {@link repair}. */
  get isKnown(): boolean {
    return this.#installed !== undefined;
  }

  /**
   * Puts plans of changed Services into effect, after a {@link syncAll} that succeeded with the same `plan.node`
   * (`RuleSet.sync` guarantees this).
   */
  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey>, committing: () => void): Promise<TableChange> {
    for (const key of touched) this.#elements.put(key, plan.service(key));
    return await this.#commitInUse(committing);
  }

  /**
   * Makes the table contain exactly the objects that the plan needs. Correct elements stay; rules are written again
   * unless they are known to be correct, in which case empty chains and sets of other programs stay. Everything is read
   * before anything is written, so that nothing has changed if reading fails.
   */
  async syncAll(plan: FamilyPlan, committing: () => void): Promise<TableChange> {
    const { connection, maxClients } = this.#options;
    const frame = this.#renderFrame(plan);
    this.#checkedGeneration = undefined;
    const present = await readOwnObjects(connection, this.#id);
    const before: RulesByChain = present === undefined ? new Map() : await readRules(connection, this.#id, present);
    const installed = await readElements(connection, this.#id, present?.shared ?? new Set());
    if (present !== undefined && this.#installed?.frame.text === frame.text && this.#hasRules(before)) {
      await putAll(this.#elements, plan);
      await this.#elements.table.compareWith(installed);
      return await this.#commitInUse(committing);
    }
    this.#elements = new ServiceElements(this.#id, maxClients, plan.node.podTraffic);
    await fillElements(this.#elements, plan, installed);
    committing();
    return await this.#install(frame, { objects: present ?? noObjects, elements: installed }, before);
  }

  /** Compares the table with its desired contents and repairs it; calls `committing` before the first change. */
  async repair(plan: FamilyPlan, committing: () => void = () => undefined): Promise<TableChange> {
    const { connection } = this.#options;
    const generation = await connection.generation();
    if (this.#installed !== undefined && generation === this.#checkedGeneration) return nothing;
    this.#checkedGeneration = undefined;
    const present = await readOwnObjects(connection, this.#id);
    if (present === undefined || !this.#hasRules(await readRules(connection, this.#id, present))) {
      return await this.syncAll(plan, committing);
    }
    const { table } = this.#elements;
    await table.compareWith(await readElements(connection, this.#id, present.shared));
    // `ElementTable` keeps no comments of committed elements, so elements that have to be put back get their comments
    // from the plan.
    if (table.changes().length > 0) await putAll(this.#elements, plan);
    const change = await this.#commitInUse(committing);
    // It was read before the table, so a change during the comparison is found by the next one.
    if (change.elements.length === 0) this.#checkedGeneration = generation;
    return change;
  }

  /** Whether `rules` are equal to the rules that the last successful call installed. */
  #hasRules(rules: RulesByChain): boolean {
    return this.#installed !== undefined && compareRules(this.#installed.rules, rules).length === 0;
  }

  /** Writes all fixed rules, and the elements that differ from those in the kernel. */
  async #install(frame: RenderedFrame, present: PresentTable, before: RulesByChain): Promise<TableChange> {
    const { connection } = this.#options;
    this.#installed = undefined;
    await applyNft(frame.skeleton);
    const { picks, additions, elements, last } = await planInstall(this.#elements, present, frame);
    await this.#installChains(picks, additions);
    // The hooks are installed last. As long as they are missing, no packet uses the sets, even if an earlier first load
    // was interrupted.
    const isUnused = !before.has(natHook);
    await this.#send([...this.#pickChains(picks), ...elements], isUnused);
    this.#elements.chains.committed();
    this.#elements.table.committed();
    await applyLast(last);
    const rules = await readRules(connection, this.#id);
    // If another program has changed rules since they were written, they stay unknown, so that the next call writes
    // them again.
    const commands = `${frame.skeleton}${this.#renderPicks(picks)}${additions}${last}`;
    if (differentChains(commands, rules).length === 0) this.#installed = { picks, rules, frame };
    return { elements, chains: compareRules(before, rules) };
  }

  #renderFrame({ node }: FamilyPlan): RenderedFrame {
    const { table, masqueradeBit } = this.#options;
    const options = { node, table, masqueradeBit };
    const [skeleton, hooks] = [renderSkeleton(options), renderHooks(this.#id)];
    return { skeleton, hooks, text: skeleton + hooks };
  }

  /** Commits the changes since the last commit to a table that packets already use. */
  async #commitInUse(committing: () => void): Promise<TableChange> {
    const { connection } = this.#options;
    const { table, chains } = this.#elements;
    const installed = this.#installed;
    if (installed === undefined) throw new Error("commit before the first full sync");
    const { picks, additions, elements, last } = planChange(this.#elements, installed.picks);
    const written = chains.written.map(({ name }) => name);
    const ours = new Set([...picks, ...written, ...chains.removed.map(({ name }) => name)]);
    const hasNewRules = picks.size > 0 || additions !== "" || last !== "";
    if (elements.length === 0 && !hasNewRules) {
      table.committed();
      return nothing;
    }
    committing();
    this.#installed = undefined;
    await this.#installChains(picks, additions);
    await this.#send([...this.#pickChains(picks), ...elements], false);
    if (last !== "") await applyLast(last);
    chains.committed();
    table.committed();
    const rules = hasNewRules ? await readRules(connection, this.#id) : installed.rules;
    const changed = hasNewRules ? compareRules(installed.rules, rules) : [];
    // If another program has changed rules since the last comparison, `#installed` stays undefined, so that the next
    // call writes all rules again.
    const commands = `${this.#renderPicks(picks)}${additions}${last}`;
    if (changed.every((name) => ours.has(name)) && differentChains(commands, rules).length === 0) {
      this.#installed = { ...installed, picks: new Set([...installed.picks, ...picks]), rules };
    }
    if (!hasNewRules) return { elements, chains: [] };
    // A rule with another anonymous map has the same expressions, so rules alone do not show its change.
    return { elements, chains: [...new Set([...changed, ...written])].sort() };
  }

  /** Returns the commands for pick chains. */
  #renderPicks(names: Iterable<string>): string {
    return [...names].map((name) => renderPick(this.#id, name)).join("");
  }

  /** Uses nft to install the chains that new elements need, except the chains that nft cannot add. */
  async #installChains(picks: ReadonlySet<string>, additions: string): Promise<void> {
    const sticky = [...picks].filter((name) => name.startsWith("sticky_"));
    const commands = `${this.#renderPicks(sticky)}${additions}`;
    if (commands !== "") await applyNft(commands);
  }

  /**
   * Returns the steps that install pick chains; chains for client affinity are installed by {@link #installChains}.
   */
  #pickChains(names: ReadonlySet<string>): readonly BatchStep[] {
    const plain = [...names].filter((name) => !name.startsWith("sticky_"));
    return plain.map((name) => pickChainAddition(this.#options.family, countOfPick(name) ?? 0));
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
