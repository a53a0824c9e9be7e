import { sharedSets } from "../layout/set-names.ts";
import type { TableId } from "../netlink/element-batch.ts";
import type { DeclaredSet, ServiceChain } from "../render/service-chains.ts";
import { ipOf } from "../render/skeleton.ts";

interface HeldChain {
  chain: ServiceChain;
  /** How many Services need it. */
  owners: number;
}

/**
 * The chains that single Services need, for client affinity and source ranges, and which of them are installed.
 * `ServiceElements` adds and releases the chains of each Service; `NftTable` runs the commands that it returns.
 *
 * Separate from `ElementTable`, because the program nft writes chains, as text, and netlink writes elements.
 */
export class ServiceChains {
  readonly #table: TableId;
  readonly #wanted = new Map<string, HeldChain>();
  /** By name, as they were last installed. */
  readonly #installed = new Map<string, ServiceChain>();
  readonly #changed = new Set<string>();

  constructor(table: TableId) {
    this.#table = table;
  }

  get(name: string): ServiceChain | undefined {
    return this.#wanted.get(name)?.chain;
  }

  /** Chains that are wanted, installed or not. */
  *wanted(): Generator<ServiceChain, void, void> {
    for (const { chain } of this.#wanted.values()) yield chain;
  }

  get names(): ReadonlySet<string> {
    return new Set(this.#wanted.keys());
  }

  /** Names of the sets of wanted chains. */
  get setNames(): ReadonlySet<string> {
    return new Set([...this.#wanted.values()].flatMap(({ chain }) => chain.set?.name ?? []));
  }

  add(chain: ServiceChain): void {
    const held = this.#wanted.get(chain.name);
    if (held === undefined) this.#wanted.set(chain.name, { chain, owners: 1 });
    else {
      held.chain = chain;
      held.owners += 1;
    }
    this.#changed.add(chain.name);
  }

  release(name: string): void {
    const held = this.#wanted.get(name);
    if (held === undefined) return;
    held.owners -= 1;
    if (held.owners === 0) this.#wanted.delete(name);
    this.#changed.add(name);
  }

  /** Commands that must be applied before elements lead to the chains; "" for none. */
  additions(): string {
    const chains = [...this.#changed].flatMap((name) => {
      const chain = this.#wanted.get(name)?.chain;
      return chain === undefined || isSameChain(chain, this.#installed.get(name)) ? [] : [chain];
    });
    const at = `${ipOf(this.#table.family)} ${this.#table.name}`;
    return [
      ...chains.flatMap(({ set }) => (set === undefined ? [] : addSet(at, set))),
      ...chains.flatMap(({ name, rules }) => [
        `add chain ${at} ${name}`,
        `flush chain ${at} ${name}`,
        ...rules.map((rule) => `add rule ${at} ${name} ${rule}`),
      ]),
    ]
      .map((line) => `${line}\n`)
      .join("");
  }

  /** Commands that may be applied once no element leads to chains that are no longer wanted; "" for none. */
  removals(): string {
    const gone = [...this.#changed].flatMap((name) =>
      this.#wanted.has(name) ? [] : (this.#installed.get(name) ?? []),
    );
    const sets = this.setNames;
    const unused = gone.flatMap(({ set }) => (set === undefined || sets.has(set.name) ? [] : [set]));
    return this.#remove(
      gone.map(({ name }) => name),
      unused.map(({ name, declaration }) => ({ name, kind: declaration.startsWith("map ") ? "map" : "set" })),
    );
  }

  /**
   * Commands that remove all of these chains and sets that no Service needs: those of an earlier run, and those that
   * another program has added to our table, whose rules may lead to ours and so keep them from being deleted. `fixed`
   * are the names of chains that stay in any case; shared sets stay, too.
   */
  removalsOf(
    chains: readonly string[],
    sets: readonly { readonly kind: string; readonly name: string }[],
    fixed: ReadonlySet<string>,
  ): string {
    const kept = new Set<string>([...this.setNames, ...sharedSets]);
    return this.#remove(
      chains.filter((name) => !this.#wanted.has(name) && !fixed.has(name)),
      sets.filter(({ name }) => !kept.has(name)),
    );
  }

  /** Declares that additions and removals have been applied. */
  committed(): void {
    for (const name of this.#changed) {
      const chain = this.#wanted.get(name)?.chain;
      if (chain === undefined) this.#installed.delete(name);
      else this.#installed.set(name, chain);
    }
    this.#changed.clear();
  }

  #remove(chains: readonly string[], sets: readonly { readonly kind: string; readonly name: string }[]): string {
    const at = `${ipOf(this.#table.family)} ${this.#table.name}`;
    const lines = [
      ...chains.map((name) => `flush chain ${at} ${name}`),
      // Before the chains: elements of a foreign map may lead to them.
      ...[...new Map(sets.map((set) => [set.name, set])).values()].map(
        ({ kind, name }) => `delete ${kind} ${at} ${name}`,
      ),
      ...chains.map((name) => `delete chain ${at} ${name}`),
    ];
    return lines.map((line) => `${line}\n`).join("");
  }
}

/**
 * Returns the commands that add a set, or give it its contents again if it exists: `map NAME { … }` becomes `add map
 * TABLE NAME { … }`.
 */
function addSet(at: string, { name, declaration, elements }: DeclaredSet): readonly string[] {
  const add = `add ${declaration.replace(/^(map|set) /, `$1 ${at} `)}`;
  if (elements === undefined) return [add];
  return [add, `flush set ${at} ${name}`, `add element ${at} ${name} { ${elements.join(", ")} }`];
}

function isSameChain(a: ServiceChain, b: ServiceChain | undefined): boolean {
  return b !== undefined && textOf(a) === textOf(b);
}

function textOf({ set, rules }: ServiceChain): string {
  return [set?.declaration, ...(set?.elements ?? []), ...rules].join("\n");
}
