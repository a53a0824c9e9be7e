import { forEachService } from "@kpng/backend-kit/proxy/for-each-service.ts";
import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { RenderOptions, SharedList } from "../render/chains.ts";
import type { FixedRules } from "../render/fixed-chains.ts";
import { type RenderedService, renderService } from "../render/render-service.ts";
import { type ChainBody, type ChainId, splitChainId } from "../render/rule.ts";

/** The rules in a `SharedList`. */
interface ListContents {
  /**
   * Rules, keyed by owner. The owner is a Service (by its key) or a bucket to which the rule jumps (by its chain id, with
   * a tilde in front if it comes last, because no key of a Service sorts after that).
   */
  readonly parts: Map<string, readonly string[]>;
  /** For a bucket: the rule that jumps to it, and the chain that contains this rule. */
  readonly entry: SharedList["entry"];
  /** Whether a rule that several Services need is installed only once. */
  readonly isDistinct: boolean;
}

/**
 * The chains that should be installed in one family, updated Service by Service.
 *
 * The contents depend only on the last put of each Service, not on the order of the puts, so two instances with the
 * same Services contain the same text.
 *
 * *Cost:* the time of a put is proportional to the number of rules of the Service, the time of `takeTouched` to the
 * number of shared chains that changed.
 */
export class DesiredChains {
  /** Rules before and after the Services' rules, for chains that always exist. */
  readonly #fixed: ReadonlyMap<ChainId, FixedRules>;
  readonly #bodies = new Map<ChainId, ChainBody>();
  readonly #services = new Map<ServiceKey, Contribution>();
  readonly #lists = new Map<ChainId, ListContents>();
  readonly #staleLists = new Set<ChainId>();
  #touched = new Set<ChainId>();

  constructor(fixed: ReadonlyMap<ChainId, FixedRules>) {
    this.#fixed = fixed;
    for (const id of fixed.keys()) this.#staleLists.add(id);
  }

  /** All chains. Shared chains are up to date only after `takeTouched`. */
  get bodies(): ReadonlyMap<ChainId, ChainBody> {
    return this.#bodies;
  }

  services(): ServiceKey[] {
    return [...this.#services.keys()];
  }

  /** Replaces the rules of a Service. `rendered` is undefined for a deleted Service. */
  put(key: ServiceKey, rendered: RenderedService | undefined): void {
    const before = this.#services.get(key);
    const after = rendered === undefined ? undefined : contributionOf(rendered);
    for (const id of before?.chains ?? []) if (after === undefined || !rendered?.chains.has(id)) this.#remove(id);
    for (const [id, rules] of rendered?.chains ?? []) this.#setBody(id, toBody(id, rules));
    for (const [id, part] of before?.lists ?? []) {
      if (after?.lists.has(id) !== true) this.#setPart(part.list, key, undefined);
    }
    for (const [, part] of after?.lists ?? []) this.#setPart(part.list, key, part.rules);
    if (after === undefined) this.#services.delete(key);
    else this.#services.set(key, after);
  }

  /** Returns the chains that were created, changed or deleted since the last call. */
  takeTouched(): ReadonlySet<ChainId> {
    // Buckets are rebuilt first, because creating or deleting a bucket changes the list that jumps to it.
    for (const id of [...this.#staleLists]) if (!this.#fixed.has(id)) this.#rebuild(id);
    for (const id of [...this.#staleLists]) this.#rebuild(id);
    const touched = this.#touched;
    this.#touched = new Set();
    return touched;
  }

  /** Replaces the rules of one owner in a shared chain. The chain is rebuilt later, by `takeTouched`. */
  #setPart(list: SharedList, owner: string, rules: readonly string[] | undefined): void {
    const { entry, isDistinct = false } = list;
    const contents = this.#lists.get(list.id) ?? { parts: new Map<string, readonly string[]>(), entry, isDistinct };
    this.#lists.set(list.id, contents);
    const before = contents.parts.get(owner);
    if (before !== undefined && rules !== undefined && sameRules(before, rules)) return;
    if (before === undefined && rules === undefined) return;
    if (rules === undefined) contents.parts.delete(owner);
    else contents.parts.set(owner, rules);
    this.#staleLists.add(list.id);
  }

  /** Joins the rules of all owners of a shared chain, and updates the rule that jumps to it if it is a bucket. */
  #rebuild(id: ChainId): void {
    this.#staleLists.delete(id);
    const list = this.#lists.get(id);
    const fixed = this.#fixed.get(id);
    const entry = list?.entry;
    const isEmpty = list === undefined || list.parts.size === 0;
    if (entry !== undefined) {
      const owner = entry.isLast === true ? `~${id}` : id;
      this.#setPart({ id: entry.parent }, owner, isEmpty ? undefined : [entry.rule]);
    }
    if (isEmpty && fixed === undefined) {
      this.#lists.delete(id);
      this.#remove(id);
      return;
    }
    const owners = [...(list?.parts ?? [])].sort(([a], [b]) => compareText(a, b));
    const rules = owners.flatMap(([, part]) => part);
    const distinct = list?.isDistinct === true ? [...new Set(rules)].sort(compareText) : rules;
    this.#setBody(id, toBody(id, [...(fixed?.head ?? []), ...distinct, ...(fixed?.tail ?? [])]));
  }

  #setBody(id: ChainId, body: ChainBody): void {
    if (this.#bodies.get(id) === body) return;
    this.#bodies.set(id, body);
    this.#touched.add(id);
  }

  #remove(id: ChainId): void {
    if (this.#bodies.delete(id)) this.#touched.add(id);
  }
}

/** The chains of a Service and its rules in shared chains, kept so that the next put can remove them. */
interface Contribution {
  readonly chains: readonly ChainId[];
  readonly lists: ReadonlyMap<ChainId, { readonly list: SharedList; readonly rules: string[] }>;
}

/** Groups the rules of a Service by the shared chain that they belong to. */
function contributionOf(rendered: RenderedService): Contribution {
  const lists = new Map<ChainId, { readonly list: SharedList; readonly rules: string[] }>();
  for (const { list, rule } of rendered.listed) {
    const known = lists.get(list.id);
    if (known === undefined) lists.set(list.id, { list, rules: [rule] });
    else known.rules.push(rule);
  }
  return { chains: [...rendered.chains.keys()], lists };
}

function toBody(id: ChainId, rules: readonly string[]): ChainBody {
  const { chain } = splitChainId(id);
  return rules.map((text) => `-A ${chain} ${text}\n`).join("");
}

function sameRules(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((text, at) => text === b[at]);
}

/**
 * Renders the touched Services of a plan into `desired`. If `touched` is "all", also removes the Services that the plan
 * no longer contains. Returns the chains that changed.
 */
export async function putPlan(
  plan: FamilyPlan,
  touched: ReadonlySet<ServiceKey> | "all",
  desired: DesiredChains,
  options: RenderOptions,
): Promise<ReadonlySet<ChainId>> {
  const keys = touched === "all" ? new Set(plan.keys()) : touched;
  if (touched === "all") for (const key of desired.services()) if (!keys.has(key)) desired.put(key, undefined);
  await forEachService(keys, (key) => {
    const service = plan.service(key);
    desired.put(key, service === undefined ? undefined : renderService(service, options));
  });
  return desired.takeTouched();
}
