import type { ExternalAddress, Family } from "./wanted.ts";

/** A translation that existing connections may still follow. */
export interface Translation {
  readonly external: string;
  readonly endpoint: string;
}

/** Returns the translations in our rules. */
export function translationsIn(rules: readonly string[]): readonly Translation[] {
  return rules.flatMap((rule) => {
    const match = /-d (\S+)\/\d+ .*-j DNAT --to-destination (\S+)$/.exec(rule);
    return match?.[1] === undefined || match[2] === undefined ? [] : [{ external: match[1], endpoint: match[2] }];
  });
}

/**
 * Returns the arguments of the `conntrack` calls that make connectionless flows follow a change of the rules.
 *
 * The kernel evaluates the nat table only for the first packet of a flow. A client that keeps sending UDP or ping from
 * the same socket would reach a pod that is gone, or no pod if it began before the external IP was known. TCP needs no
 * help: its connections end by themselves, and the next one is a new flow.
 */
export function flowsToForget(
  family: Family,
  before: readonly Translation[],
  after: readonly ExternalAddress[],
): readonly (readonly string[])[] {
  const wanted = new Map(after.map(({ address, endpoints }) => [address, endpoints]));
  const known = new Set(before.map(({ external }) => external));
  const toGone = before.filter(({ external, endpoint }) => wanted.get(external)?.includes(endpoint) !== true);
  const filters = [
    ...toGone.map(({ external, endpoint }) => ["--orig-dst", external, "--dst-nat", endpoint]),
    ...after.filter(({ address }) => !known.has(address)).map(({ address }) => ["--orig-dst", address]),
  ];
  const protocols = family === "v4" ? ["udp", "icmp"] : ["udp", "icmpv6"];
  return filters.flatMap((filter) =>
    protocols.map((protocol) => ["-D", "-f", family === "v4" ? "ipv4" : "ipv6", "-p", protocol, ...filter]),
  );
}
