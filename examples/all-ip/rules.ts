import type { ExternalAddress, Family } from "./wanted.ts";

/** Chain that sends external IPs to endpoints, reached from PREROUTING (others' packets) and OUTPUT (the node's own). */
export const dnatChain = "KPNG-ALLIP";

/** Chain that masquerades an endpoint's packets to itself, reached from POSTROUTING. */
export const hairpinChain = "KPNG-ALLIP-HAIRPIN";

/** Where our chains hang in the nat table. */
const hooks = [
  { from: "PREROUTING", to: dnatChain },
  { from: "OUTPUT", to: dnatChain },
  { from: "POSTROUTING", to: hairpinChain },
] as const;

/**
 * Returns the rules of our chains, in the words of iptables-save, so that they can be compared with what is there.
 *
 * Empty if nothing is wanted: then the chains are not wanted either.
 */
export function renderRules(family: Family, wanted: readonly ExternalAddress[]): readonly string[] {
  const whole = family === "v4" ? 32 : 128;
  const dnat = wanted.flatMap(({ address, service, endpoints }) =>
    endpoints.map((endpoint, index) => {
      const choice = oneOf(endpoints.length - index);
      return `-A ${dnatChain} -d ${address}/${whole} -m comment --comment "${service}"${choice} -j DNAT --to-destination ${endpoint}`;
    }),
  );
  // A reply from a pod to itself would never leave the pod, so nobody would translate it back. All other replies pass
  // this node, because the endpoint is here: they need no masquerade, and the pod sees the client's own address.
  const own = [...new Set(wanted.flatMap(({ endpoints }) => endpoints))].sort();
  const hairpin = own.map(
    (endpoint) => `-A ${hairpinChain} -s ${endpoint}/${whole} -d ${endpoint}/${whole} -j MASQUERADE`,
  );
  return [...dnat, ...hairpin];
}

/**
 * The match that takes one of `count` new connections, empty for the last one, which takes all that are left.
 *
 * The kernel keeps the probability in 31 bits; iptables-save shows what it kept, and so do we.
 */
function oneOf(count: number): string {
  if (count === 1) return "";
  const kept = Math.round(2 ** 31 / count) / 2 ** 31;
  return ` -m statistic --mode random --probability ${kept.toFixed(11)}`;
}

/** Our part of a nat table as iptables-save shows it. */
export interface Actual {
  readonly chains: readonly string[];
  /** Rules in our chains. */
  readonly rules: readonly string[];
  /** Rules elsewhere that jump to our chains. */
  readonly jumps: readonly string[];
}

export const nothingActual: Actual = { chains: [], rules: [], jumps: [] };

/** Finds our chains, rules and jumps in the output of `iptables-save -t nat`. */
export function readActual(saved: string): Actual {
  const lines = saved.split("\n");
  const isOurs = (name: string | undefined) => name === dnatChain || name === hairpinChain;
  return {
    chains: lines.flatMap((line) => /^:(\S+) /.exec(line)?.[1] ?? []).filter(isOurs),
    rules: lines.filter((line) => isOurs(/^-A (\S+) /.exec(line)?.[1])),
    jumps: lines.filter((line) => isOurs(/-[jg] (\S+)$/.exec(line)?.[1])),
  };
}

/**
 * Returns what `iptables-restore --noflush` has to be told so that `actual` becomes `rules`; undefined if it is so already.
 *
 * One transaction: a packet meets the old rules or the new ones, never half of them.
 */
export function renderTransaction(actual: Actual, rules: readonly string[]): string | undefined {
  return rules.length === 0 ? renderRemoval(actual) : renderReplacement(actual, rules);
}

function renderReplacement(actual: Actual, rules: readonly string[]): string | undefined {
  const jumps = hooks.map(({ from, to }) => `-A ${from} -j ${to}`);
  const hasRules = actual.rules.length === rules.length && sameOrder(actual.rules, rules);
  const hasJumps = actual.jumps.length === jumps.length && jumps.every((jump) => actual.jumps.includes(jump));
  if (hasRules && hasJumps) return undefined;
  // A declared chain is emptied. Jumps go first, so that an external IP belongs to its Service before anything else in
  // the table can take one of its ports.
  return transaction([
    ...declarations,
    ...(hasJumps ? [] : [...actual.jumps.map(toDelete), ...hooks.map(({ from, to }) => `-I ${from} -j ${to}`)]),
    ...rules,
  ]);
}

/** iptables-save lists chains by their age or name; the order of rules counts only inside a chain. */
function sameOrder(actual: readonly string[], rules: readonly string[]): boolean {
  return [dnatChain, hairpinChain].every((chain) => {
    const inChain = (lines: readonly string[]) => lines.filter((line) => line.startsWith(`-A ${chain} `)).join("\n");
    return inChain(actual) === inChain(rules);
  });
}

function renderRemoval(actual: Actual): string | undefined {
  if (actual.chains.length === 0) return undefined;
  return transaction([...declarations, ...actual.jumps.map(toDelete), `-X ${dnatChain}`, `-X ${hairpinChain}`]);
}

const declarations: readonly string[] = [`:${dnatChain} - [0:0]`, `:${hairpinChain} - [0:0]`];

function toDelete(rule: string): string {
  return rule.replace(/^-A /, "-D ");
}

function transaction(lines: readonly string[]): string {
  return `${["*nat", ...lines, "COMMIT"].join("\n")}\n`;
}
