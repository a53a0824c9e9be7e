import type { ChainNames } from "../render/chains.ts";
import { type ChainBody, type ChainId, chainId, type Table } from "../render/rule.ts";

/** Our chains and jumps that are installed in the kernel for one family. */
export interface InstalledRules {
  /** Our chains with their rules. A body that equals the desired one is the same string object, not a copy. */
  readonly chains: ReadonlyMap<ChainId, ChainBody>;
  /** For each built-in chain, the rules that jump to our chains, in order, each without `-A CHAIN `. */
  readonly jumps: ReadonlyMap<ChainId, readonly string[]>;
}

/**
 * Built-in chains of the tables that we write to. Jumps are found in all of them: another version of kpng may have had
 * jumps where this version has none.
 */
const builtIn = new Set(["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"]);

interface OpenChain {
  readonly id: ChainId;
  readonly desired: ChainBody | undefined;
  /** Number of characters that have arrived so far and are equal to `desired`; undefined after the first difference. */
  equalLength: number | undefined;
  /** Lines that have arrived; stored only if the chain differs from `desired`. */
  lines: string[];
}

/**
 * Finds our rules in the output of iptables-save as it arrives: the chains whose names begin with `prefix`, and the
 * rules of other chains that jump to them.
 *
 * Each chain is compared with its desired rules while it arrives, and its text is stored only if it differs. A node has
 * tens of thousands of rules, of which at most a few differ in each check. Lines of other programs are skipped.
 */
export class InstalledRulesReader {
  readonly #prefix: string;
  readonly #desired: ReadonlyMap<ChainId, ChainBody>;
  readonly #chains = new Map<ChainId, ChainBody>();
  readonly #jumps = new Map<ChainId, string[]>();
  #table: Table | undefined;
  #open: OpenChain | undefined;
  /** The last line, while it is incomplete. */
  #lineStart = "";

  /**
   * `desired` contains the chains with which the result will be compared; without it, the text of every chain is
   * stored.
   */
  constructor(prefix: string, desired: ReadonlyMap<ChainId, ChainBody> = new Map()) {
    this.#prefix = prefix;
    this.#desired = desired;
  }

  /** Takes the next piece of the output, which may end anywhere. */
  take(text: string): void {
    const all = this.#lineStart + text;
    let start = 0;
    for (let end = all.indexOf("\n"); end >= 0; end = all.indexOf("\n", start)) {
      this.#takeLine(all, start, end + 1);
      start = end + 1;
    }
    this.#lineStart = all.slice(start);
  }

  /** Returns the result. Must be called after the last piece. */
  end(): InstalledRules {
    if (this.#lineStart !== "") this.take("\n");
    this.#close();
    return { chains: this.#chains, jumps: this.#jumps };
  }

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
    if (open.equalLength !== undefined && open.desired?.startsWith(line, open.equalLength) === true) {
      open.equalLength += line.length;
      return;
    }
    diverge(open);
    open.lines.push(line);
  }

  /** Prepares a chain for its next rules, which are appended to the rules that arrived earlier. */
  #openChain(id: ChainId): OpenChain {
    this.#close();
    const before = this.#chains.get(id) ?? "";
    const desired = this.#desired.get(id);
    const isSame = before === "" && desired !== undefined;
    this.#open = { id, desired, equalLength: isSame ? 0 : undefined, lines: before === "" ? [] : [before] };
    return this.#open;
  }

  #close(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    if (open.desired !== undefined && open.equalLength === open.desired.length) {
      this.#chains.set(open.id, open.desired);
      return;
    }
    diverge(open);
    this.#chains.set(open.id, open.lines.join(""));
  }

  #takeJump(table: Table, rule: string): void {
    const target = rule.match(/ -[jg] (\S+)/)?.[1];
    if (target?.startsWith(this.#prefix) !== true) return;
    const chain = rule.slice(0, rule.indexOf(" "));
    if (!builtIn.has(chain)) return;
    const id = chainId(table, chain);
    const rules = this.#jumps.get(id) ?? [];
    rules.push(rule.slice(chain.length + 1));
    this.#jumps.set(id, rules);
  }
}

/** Finds our rules in the complete output of iptables-save. Pure. */
export function findInstalledRules(saved: string, prefix: string): InstalledRules {
  const reader = new InstalledRulesReader(prefix);
  reader.take(saved);
  return reader.end();
}

/**
 * Marks a chain as different from `desired`, and stores the lines that have arrived so far, so that later lines can be
 * appended.
 */
function diverge(open: OpenChain): void {
  if (open.equalLength === undefined) return;
  if (open.equalLength > 0) open.lines.push(open.desired?.slice(0, open.equalLength) ?? "");
  open.equalLength = undefined;
}

/**
 * True if packets reach rules that an earlier run left. False if another program has flushed the chains or the jumps,
 * or if the chain SERVICES needs no rule, neither for a Service nor for the addresses of node ports. Pure.
 */
export function isReached({ chains, jumps }: InstalledRules, names: ChainNames): boolean {
  return (chains.get(chainId("nat", names.fixed("SERVICES"))) ?? "") !== "" && jumps.has(chainId("nat", "PREROUTING"));
}
