import type { ChainNames } from "../render/chains.ts";
import { type ChainBody, type ChainId, chainId, type Table, tables } from "../render/rule.ts";
import { BackendIptablesError, type RunTool, type Tools } from "./tools.ts";

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
  readonly lines: string[];
}

/**
 * Finds our rules in the output of iptables-save as it arrives: the chains whose names begin with `prefix`, and the
 * rules of other chains that jump to them.
 *
 * Each chain is compared with its desired rules as soon as it is complete, and its text is stored only if it differs. A
 * node has tens of thousands of rules, of which at most a few differ in each check. Lines of other programs are skipped.
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
    if (this.#open?.id !== id) {
      this.#close();
      // The rules of a chain may be printed in two places.
      this.#open = { id, lines: [this.#chains.get(id) ?? ""] };
    }
    this.#open.lines.push(all.slice(start, end));
  }

  #close(): void {
    if (this.#open === undefined) return;
    const { id, lines } = this.#open;
    const [text, desired] = [lines.join(""), this.#desired.get(id)];
    this.#chains.set(id, text === desired ? desired : text);
    this.#open = undefined;
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
 * True if packets reach rules that an earlier run left. False if another program has flushed the chains or the jumps,
 * or if the chain SERVICES needs no rule, neither for a Service nor for the addresses of node ports. Pure.
 */
export function isReached({ chains, jumps }: InstalledRules, names: ChainNames): boolean {
  return (chains.get(chainId("nat", names.fixed("SERVICES"))) ?? "") !== "" && jumps.has(chainId("nat", "PREROUTING"));
}

/**
 * Returns the output of iptables-save for all tables in use.
 *
 * It does not pass `-t`, with which iptables-legacy would load the kernel module of the table; a loaded module costs
 * time for each packet.
 *
 * Errors: SAVE_FAILED; TABLE_INCOMPATIBLE if iptables-nft cannot print a table that we use; the errors of `run`.
 */
export async function readRules(tools: Tools, run: RunTool): Promise<string> {
  let saved = "";
  await scanRules(tools, run, (text) => {
    saved += text;
  });
  return saved;
}

/**
 * Notice that iptables-nft-save prints instead of the rules of a table, with exit status 0, if the program `nft` has
 * added a rule to the table that iptables cannot express. Without this check, the table would look empty.
 *
 * *Source:* iptables 1.8.9, `nft-save`: "Table `%s' is incompatible, use 'nft' tool."
 */
const notice = /^# Table `(\w+)' is incompatible/gm;

/** Number of characters, more than those of a notice, that are kept because a piece of output may end anywhere in one. */
const maxNoticeLength = 100;

/** Like {@link readRules}, but passes the output to `take` as it arrives, in pieces that may end anywhere. */
export async function scanRules(tools: Tools, run: RunTool, take: (text: string) => void): Promise<void> {
  const incompatible = new Set<string>();
  let partialLine = "";
  const onOutput = (text: string): void => {
    const all = partialLine + text;
    for (const [, table = ""] of all.matchAll(notice)) incompatible.add(table);
    partialLine = all.slice(Math.max(all.length - maxNoticeLength, all.lastIndexOf("\n") + 1));
    take(text);
  };
  const { exitCode, stderr } = await run([tools.save], { onOutput });
  if (exitCode !== 0) {
    throw new BackendIptablesError("SAVE_FAILED", `${tools.save} failed (exit status ${exitCode}): ${stderr.trim()}`);
  }
  const table = tables.find((each) => incompatible.has(each));
  if (table === undefined) return;
  const nftTable = `${tools.family === "v4" ? "ip" : "ip6"} ${table}`;
  throw new BackendIptablesError(
    "TABLE_INCOMPATIBLE",
    `${tools.save} cannot print table ${table}: a program added rules with nft. Move them to a table of their own ("nft -a list table ${nftTable}" shows them, "nft delete rule ${nftTable} CHAIN handle N" deletes one)`,
  );
}
