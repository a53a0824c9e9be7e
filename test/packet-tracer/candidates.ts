import type { Match, Rule } from "./rule.ts";
import type { Traced } from "./traced.ts";

/** Positions in a chain, ascending, of the rules for one address, of those for one port, and of all others. */
interface ChainIndex {
  readonly byAddress: ReadonlyMap<string, readonly number[]>;
  readonly byPort: ReadonlyMap<number, readonly number[]>;
  readonly others: readonly number[];
}

/** A shorter chain is faster without an index. */
const minRules = 32;

const indexes = new WeakMap<readonly Rule[], ChainIndex>();

/**
 * Returns the rules of a chain that may match a packet, in their order. `walk` calls it for each chain. Separate from
 * `walk`, because the result of a trace does not depend on it, only its speed:
 *
 * kube-proxy's KUBE-SERVICES and KUBE-NODEPORTS have a rule for each address and port of a cluster: comparing each
 * packet with all of them would take time proportional to the square of their number.
 */
export function candidates(rules: readonly Rule[], { destination, port }: Traced): readonly Rule[] {
  if (rules.length < minRules) return rules;
  let index = indexes.get(rules);
  if (index === undefined) {
    index = indexChain(rules);
    indexes.set(rules, index);
  }
  const positions = [...(index.byAddress.get(destination) ?? []), ...(index.byPort.get(port) ?? []), ...index.others];
  return positions.sort((a, b) => a - b).flatMap((position) => rules[position] ?? []);
}

function indexChain(rules: readonly Rule[]): ChainIndex {
  const byAddress = new Map<string, number[]>();
  const byPort = new Map<number, number[]>();
  const others: number[] = [];
  const add = <Key>(map: Map<Key, number[]>, key: Key, position: number): void => {
    const list = map.get(key);
    if (list === undefined) map.set(key, [position]);
    else list.push(position);
  };
  for (const [position, { matches }] of rules.entries()) {
    const address = onlyDestination(matches);
    const port = onlyPort(matches);
    if (address !== undefined) add(byAddress, address, position);
    else if (port !== undefined) add(byPort, port, position);
    else others.push(position);
  }
  return { byAddress, byPort, others };
}

/** Returns the address that a rule is about; undefined if it is about several. Shadow mode calls it too. */
export function onlyDestination(matches: readonly Match[]): string | undefined {
  for (const match of matches) {
    if (match.kind !== "address" || match.of !== "destination" || match.isNot) continue;
    const [address = "", length] = match.cidr.split("/");
    if (length !== undefined && length !== (address.includes(":") ? "128" : "32")) continue;
    return address;
  }
  return undefined;
}

/** Returns the port that a rule is about; undefined if it is about several. Shadow mode calls it too. */
export function onlyPort(matches: readonly Match[]): number | undefined {
  for (const match of matches) if (match.kind === "port" && !match.isNot && match.from === match.to) return match.from;
  return undefined;
}
