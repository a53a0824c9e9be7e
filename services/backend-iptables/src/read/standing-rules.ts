import type { ChainBody } from "../diff/desired-chains.ts";
import { builtInChains } from "../render/jumps.ts";
import { type ChainId, chainId, type Table } from "../render/table.ts";

/** What of ours stands in the kernel, in one family. */
export interface StandingRules {
  /** Our chains with their rules. A body that is one of those wanted, letter for letter, is that text itself. */
  readonly chains: ReadonlyMap<ChainId, ChainBody>;
  /** Our jumps in built-in chains, in their order, each what follows `-A CHAIN `. */
  readonly jumps: ReadonlyMap<ChainId, readonly string[]>;
}

/** Rules of one chain while they arrive. */
interface OpenChain {
  readonly id: ChainId;
  readonly wanted: ChainBody | undefined;
  /** How much of `wanted` has arrived, in characters; undefined once something else did. */
  same: number | undefined;
  /** What has arrived, from where it is something else. */
  lines: string[];
}

/**
 * Finds what is ours in the output of iptables-save while it arrives: chains that begin with `prefix`, and the rules of
 * built-in chains that jump to one.
 *
 * A chain whose rules are the wanted ones is compared with them as it comes, and nothing is made of it: a node has tens of
 * thousands of rules, and all but a few are as they should be each time that one looks. The lines of others cost next to
 * nothing.
 */
export class StandingRulesReader {
  readonly #prefix: string;
  readonly #wanted: ReadonlyMap<ChainId, ChainBody>;
  readonly #chains = new Map<ChainId, ChainBody>();
  readonly #jumps = new Map<ChainId, string[]>();
  #table: Table | undefined;
  #open: OpenChain | undefined;
  /** A line that has begun. */
  #rest = "";

  /** `wanted` are the bodies that chains will be compared with; none of them are needed. */
  constructor(prefix: string, wanted: ReadonlyMap<ChainId, ChainBody> = new Map()) {
    this.#prefix = prefix;
    this.#wanted = wanted;
  }

  /** Takes the next part of the output, cut anywhere. */
  take(text: string): void {
    const all = this.#rest + text;
    let start = 0;
    for (let end = all.indexOf("\n"); end >= 0; end = all.indexOf("\n", start)) {
      this.#takeLine(all, start, end + 1);
      start = end + 1;
    }
    this.#rest = all.slice(start);
  }

  /** Returns what was found; nothing may be taken after. */
  end(): StandingRules {
    if (this.#rest !== "") this.take("\n");
    this.#close();
    return { chains: this.#chains, jumps: this.#jumps };
  }

  /** Takes the line from `start` to `end`, with its end of line. */
  #takeLine(all: string, start: number, end: number): void {
    const first = all[start];
    if (first === "*") {
      this.#close();
      const name = all.slice(start + 1, end - 1);
      this.#table = name === "nat" || name === "filter" ? name : undefined;
    } else if (this.#table === undefined) {
      return;
    } else if (first === ":" && all.startsWith(this.#prefix, start + 1)) {
      this.#chains.set(chainId(this.#table, all.slice(start + 1, all.indexOf(" ", start))), "");
    } else if (all.startsWith("-A ", start)) {
      if (all.startsWith(this.#prefix, start + 3)) this.#takeRule(this.#table, all, start, end);
      else this.#takeJump(this.#table, all.slice(start + 3, end - 1));
    }
  }

  #takeRule(table: Table, all: string, start: number, end: number): void {
    const blank = all.indexOf(" ", start + 3);
    const id = chainId(table, all.slice(start + 3, blank < 0 || blank >= end ? end - 1 : blank));
    const open = this.#open?.id === id ? this.#open : this.#openChain(id);
    const line = all.slice(start, end);
    if (open.same !== undefined && open.wanted?.startsWith(line, open.same) === true) {
      open.same += line.length;
      return;
    }
    diverge(open);
    open.lines.push(line);
  }

  /** Rules of a chain that was left already go on where it was left. */
  #openChain(id: ChainId): OpenChain {
    this.#close();
    const before = this.#chains.get(id) ?? "";
    const wanted = this.#wanted.get(id);
    const isSame = before === "" && wanted !== undefined;
    this.#open = { id, wanted, same: isSame ? 0 : undefined, lines: before === "" ? [] : [before] };
    return this.#open;
  }

  #close(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    if (open.wanted !== undefined && open.same === open.wanted.length) {
      this.#chains.set(open.id, open.wanted);
      return;
    }
    diverge(open);
    this.#chains.set(open.id, open.lines.join(""));
  }

  #takeJump(table: Table, rule: string): void {
    const chain = rule.slice(0, rule.indexOf(" "));
    if (!builtInChains[table].includes(chain)) return;
    const target = rule.match(/ -[jg] (\S+)/)?.[1];
    if (target?.startsWith(this.#prefix) !== true) return;
    const id = chainId(table, chain);
    const rules = this.#jumps.get(id) ?? [];
    rules.push(rule.slice(chain.length + 1));
    this.#jumps.set(id, rules);
  }
}

/** Finds what is ours in the whole output of iptables-save. Pure. */
export function standingRules(saved: string, prefix: string): StandingRules {
  const reader = new StandingRulesReader(prefix);
  reader.take(saved);
  return reader.end();
}

/** From here on what arrives is kept, and what has arrived so far. */
function diverge(open: OpenChain): void {
  if (open.same === undefined) return;
  if (open.same > 0) open.lines.push(open.wanted?.slice(0, open.same) ?? "");
  open.same = undefined;
}
