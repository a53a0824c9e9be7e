import type { ExternalAddress, Family } from "./wanted.ts";

/** Chain that sends external IPs to endpoints: from PREROUTING, and from OUTPUT for the node's own packets. */
export const dnatChain = "KPNG-ALLIP";

/** Chain that masquerades the packets of an endpoint to itself, from POSTROUTING. */
export const hairpinChain = "KPNG-ALLIP-HAIRPIN";

/** The jumps to our chains in the nat table. */
const hooks = [
  { from: "PREROUTING", to: dnatChain },
  { from: "OUTPUT", to: dnatChain },
  { from: "POSTROUTING", to: hairpinChain },
] as const;

/**
 * Returns the rules of our chains in the format of iptables-save, so that they can be compared with the installed ones.
 *
 * Without addresses it returns no rules, and then the chains are removed, too.
 */
export function renderRules(family: Family, wanted: readonly ExternalAddress[]): readonly string[] {
  const whole = family === "v4" ? 32 : 128;
  const dnat = wanted.flatMap(({ address, service, endpoints }) =>
    endpoints.map((endpoint, index) => {
      const choice = oneOf(endpoints.length - index);
      return `-A ${dnatChain} -d ${address}/${whole} -m comment --comment "${service}"${choice} -j DNAT --to-destination ${endpoint}`;
    }),
  );
  // A reply of a pod to itself would never leave the pod, so the node could not translate it back. All other replies
  // pass through this node, because the endpoint is here. They need no masquerade, so the pod sees the client's
  // address.
  const own = [...new Set(wanted.flatMap(({ endpoints }) => endpoints))].sort();
  const hairpin = own.map(
    (endpoint) => `-A ${hairpinChain} -s ${endpoint}/${whole} -d ${endpoint}/${whole} -j MASQUERADE`,
  );
  return [...dnat, ...hairpin];
}

/**
 * Returns the match for one of `count` new connections; "" for the last endpoint, which takes all the rest.
 *
 * The kernel stores the probability in 31 bits and iptables-save prints the stored value, so this rounds it likewise.
 */
function oneOf(count: number): string {
  if (count === 1) return "";
  const kept = Math.round(2 ** 31 / count) / 2 ** 31;
  return ` -m statistic --mode random --probability ${kept.toFixed(11)}`;
}

/** Our part of a nat table, as iptables-save prints it. */
export interface Actual {
  readonly chains: readonly string[];
  /** Rules in our chains. */
  readonly rules: readonly string[];
  /** Rules in other chains that jump to ours. */
  readonly jumps: readonly string[];
}

export const emptyNatTable: Actual = { chains: [], rules: [], jumps: [] };

/** Returns our chains, rules and jumps in the output of `iptables-save -t nat`. */
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
 * Returns the input of `iptables-restore --noflush` that turns `actual` into `rules`; undefined if they are equal.
 *
 * It is one transaction: a packet meets the old rules or the new ones, never a mixture.
 */
export function renderTransaction(actual: Actual, rules: readonly string[]): string | undefined {
  return rules.length === 0 ? renderRemoval(actual) : renderReplacement(actual, rules);
}

function renderReplacement(actual: Actual, rules: readonly string[]): string | undefined {
  const jumps = hooks.map(({ from, to }) => `-A ${from} -j ${to}`);
  const hasRules = actual.rules.length === rules.length && sameOrder(actual.rules, rules);
  const hasJumps = actual.jumps.length === jumps.length && jumps.every((jump) => actual.jumps.includes(jump));
  if (hasRules && hasJumps) return undefined;
  // Declaring a chain flushes it. Our jumps are inserted first in their chains, so that no other rule of the table can
  // take a port of an external IP.
  return transaction([
    ...declarations,
    ...(hasJumps ? [] : [...actual.jumps.map(toDelete), ...hooks.map(({ from, to }) => `-I ${from} -j ${to}`)]),
    ...rules,
  ]);
}

/** The order of chains in iptables-save varies, so rules are compared in order only within a chain. */
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
