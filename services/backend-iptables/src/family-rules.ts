import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import type { SyncMode } from "@kpng/backend-kit/types/sync-update.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import { type Clash, FrontendClaims } from "@kpng/service-plan/frontend-claims.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { RestoreRules } from "./commit/restore-rules.ts";
import { type ChainBody, DesiredChains } from "./diff/desired-chains.ts";
import { diffChains, isEmptyChange, type RulesetChange } from "./diff/diff-chains.ts";
import { diffJumps } from "./diff/diff-jumps.ts";
import { splitChange } from "./diff/split-change.ts";
import { transactionText } from "./diff/transaction-text.ts";
import { adoptChains } from "./read/adopt.ts";
import { isSameRule } from "./read/canonical-rule.ts";
import { findPrintedForms, type PrintedForm } from "./read/printed-forms.ts";
import { type StandingRules, StandingRulesReader } from "./read/standing-rules.ts";
import type { ChainNames } from "./render/chain-names.ts";
import { renderJumps } from "./render/jumps.ts";
import { renderFixedChains } from "./render/render-fixed-chains.ts";
import type { RenderOptions } from "./render/render-options.ts";
import { renderService } from "./render/render-service.ts";
import { type ChainId, chainId, tables } from "./render/table.ts";

/** The two doors to the kernel, in one family. */
export interface Kernel {
  /** Gives `take` what iptables-save prints, in pieces cut anywhere. */
  read(take: (text: string) => void): Promise<void>;
  readonly restore: RestoreRules;
  /** How many new chains one transaction should make at most; see {@link splitChange}. Default any number. */
  readonly maxChains?: number | undefined;
}

/** What one sync did. */
export interface SyncResult {
  /** "none" if no command that changes rules was run. */
  readonly mode: "none" | "partial" | "full";
  readonly change: RulesetChange;
}

/** After this many Services the event loop gets a turn, so that health answers during a full render. */
const servicesPerTurn = 100;

/**
 * The rules of one family: what should stand in the kernel, and what does as far as we know.
 *
 * Never two calls at once; the caller sees to that.
 */
export class FamilyRules {
  readonly #kernel: Kernel;
  readonly #log: Log;
  #options: { readonly text: string; readonly value: RenderOptions } | undefined;
  #desired: DesiredChains | undefined;
  #claims = new FrontendClaims();
  /** Undefined if it must be read: at the start, and after a failure. */
  #committed: Map<ChainId, ChainBody> | undefined;
  #committing: (() => void) | undefined;
  #printedForms: ReadonlyMap<ChainId, PrintedForm> = new Map();

  #tried: SyncMode = "full";

  constructor(kernel: Kernel, log: Log) {
    this.#kernel = kernel;
    this.#log = log;
  }

  /** How much the last sync or repair looked at, also if it failed. */
  get tried(): SyncMode {
    return this.#tried;
  }

  /** What the last sync was told; undefined before the first. */
  get options(): RenderOptions | undefined {
    return this.#options?.value;
  }

  /** The chains that stand as far as is known; empty before the first sync and after a failure. */
  get committed(): ReadonlyMap<ChainId, ChainBody> {
    return this.#committed ?? new Map();
  }

  /** The chains that should stand; empty before the first sync. */
  get bodies(): ReadonlyMap<ChainId, ChainBody> {
    return this.#desired?.bodies ?? new Map();
  }

  /** Services that would answer at the same address and port. */
  get clashes(): readonly Clash[] {
    return this.#claims.clashes;
  }

  /**
   * Makes the rules agree with the view; `touched` are the Services that may have changed since the last call that
   * succeeded, and are all that is looked at unless `options` are others than then. "all" looks at everything, also at
   * what stands in the kernel.
   *
   * `committing` is called when it is known what to tell the kernel, and not at all if that is nothing.
   *
   * If it rejects, the next call reads what stands in the kernel and compares everything.
   */
  async sync(
    view: NodeView,
    touched: ReadonlySet<ServiceKey> | "all",
    options: RenderOptions,
    committing?: () => void,
  ): Promise<SyncResult> {
    this.#committing = committing;
    const text = JSON.stringify(options);
    const held = this.#options?.text === text ? this.#desired : undefined;
    const isRebuilt = held === undefined;
    const desired = held ?? newDesiredChains(options);
    this.#desired = desired;
    if (isRebuilt) this.#claims = new FrontendClaims();
    this.#options = { text, value: options };
    let count = 0;
    const gone = isRebuilt || touched !== "all" ? [] : desired.services().filter((key) => !view.services.has(key));
    for (const key of gone) this.#delete(desired, key);
    for (const key of isRebuilt || touched === "all" ? view.services.keys() : touched) {
      const service = view.services.get(key);
      if (service === undefined) this.#delete(desired, key);
      else {
        const plan = planService(service, options.node);
        desired.put(key, renderService(plan, options));
        this.#claims.put(plan);
      }
      if (++count % servicesPerTurn === 0) await nextTurn();
    }
    const changed = desired.takeTouched();
    // With other options the jumps may have to be others, and which stand is known to the kernel alone.
    if (this.#committed === undefined || isRebuilt || touched === "all") {
      return (await this.#compareAll(desired, options)).result;
    }
    this.#tried = "partial";
    const change = diffChains(this.#committed, desired.bodies, changed);
    return this.#forgetOnFailure(this.#commit(this.#committed, change, "partial"));
  }

  #delete(desired: DesiredChains, key: ServiceKey): void {
    desired.put(key, undefined);
    this.#claims.delete(key);
  }

  /** Reads what stands in the kernel and repairs what somebody else changed; undefined before the first sync. */
  async repair(): Promise<SyncResult | undefined> {
    this.#committing = undefined;
    if (this.#desired === undefined || this.#options === undefined || this.#committed === undefined) return undefined;
    const { value: options } = this.#options;
    const { result, found } = await this.#compareAll(this.#desired, options);
    if (result.mode !== "none") await this.#learnPrintedForms(this.#desired, options, found);
    return result;
  }

  /** True if the rules of these names are in force: the first of them is there and packets are led to it. */
  async stand(names: ChainNames): Promise<boolean> {
    const { chains, jumps } = await this.#read(names);
    return chains.has(chainId("nat", names.fixed("SERVICES"))) && jumps.has(chainId("nat", "PREROUTING"));
  }

  /** `found` are our chains as they stood before. */
  async #compareAll(
    desired: DesiredChains,
    options: RenderOptions,
  ): Promise<{ readonly result: SyncResult; readonly found: ReadonlyMap<ChainId, ChainBody> }> {
    this.#tried = "full";
    const { chains, jumps } = await this.#forgetOnFailure(this.#read(options.names, desired.bodies));
    const found = adoptChains(chains, desired.bodies);
    const committed = new Map(found);
    for (const [id, { body, printed }] of this.#printedForms) {
      if (committed.get(id) === printed && desired.bodies.get(id) === body) committed.set(id, body);
    }
    const ids = new Set([...committed.keys(), ...desired.bodies.keys()]);
    const jumpLines = diffJumps(jumps, renderJumps(options), isSameRule);
    const change = diffChains(committed, desired.bodies, ids, jumpLines);
    return { result: await this.#forgetOnFailure(this.#commit(committed, change, "full")), found };
  }

  /** Whoever asks meanwhile hears what stood before; if `work` fails, nobody knows what stands. */
  async #forgetOnFailure<Result>(work: Promise<Result>): Promise<Result> {
    try {
      return await work;
    } catch (error) {
      this.#committed = undefined;
      throw error;
    }
  }

  async #read(names: ChainNames, wanted?: ReadonlyMap<ChainId, ChainBody>): Promise<StandingRules> {
    const reader = new StandingRulesReader(names.prefix, wanted);
    await this.#kernel.read((text) => reader.take(text));
    return reader.end();
  }

  async #commit(
    committed: Map<ChainId, ChainBody>,
    change: RulesetChange,
    mode: "partial" | "full",
  ): Promise<SyncResult> {
    const { maxChains = Number.POSITIVE_INFINITY } = this.#kernel;
    const prefix = this.#options?.value.names.prefix ?? "";
    const pieces = isEmptyChange(change) ? [] : splitChange(change, committed, prefix, maxChains);
    if (pieces.length > 0) this.#committing?.();
    for (const piece of pieces) await this.#kernel.restore(transactionText(piece));
    for (const table of tables) {
      for (const { chain, body } of change[table].puts) committed.set(chainId(table, chain), body);
      for (const chain of change[table].deletes) committed.delete(chainId(table, chain));
    }
    this.#committed = committed;
    return { mode: isEmptyChange(change) ? "none" : mode, change };
  }

  /** Reads back what a repair has left, and remembers which of it is right in other words. */
  async #learnPrintedForms(
    desired: DesiredChains,
    options: RenderOptions,
    found: ReadonlyMap<ChainId, ChainBody>,
  ): Promise<void> {
    const { chains } = await this.#read(options.names, desired.bodies);
    this.#printedForms = findPrintedForms(found, adoptChains(chains, desired.bodies), desired.bodies);
    if (this.#printedForms.size === 0) return;
    const [example] = this.#printedForms;
    this.#log.info("rules are printed otherwise than written", { chains: this.#printedForms.size, example });
  }
}

function newDesiredChains(options: RenderOptions): DesiredChains {
  return new DesiredChains(renderFixedChains(options));
}
