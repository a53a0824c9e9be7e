import { type Family, families } from "../scenario/places.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** Returns the lines of iptables-save for chains with a prefix: the chains, their rules and the jumps to them. */
export function ownLines(saved: string, prefix: string): readonly string[] {
  const isOwn = new RegExp(`^(:${prefix}|-A ${prefix}|-A .* -[jg] ${prefix})`);
  let table = "";
  const lines: string[] = [];
  for (const line of saved.split("\n")) {
    if (line.startsWith("*")) table = line;
    else if (isOwn.test(line)) lines.push(`${table} ${line}`);
  }
  return lines;
}

/** Returns these lines for both families, comparable between runs. */
export async function ownRules(world: TwoNodes, prefix: string): Promise<readonly string[]> {
  return comparableRules(await world.rules(), prefix);
}

/**
 * Normalizes our rules, so that equal rules have equal texts. iptables-save prints chains in order of creation or by
 * name, depending on version and variant, and with counters. The order of rules in a chain is kept.
 */
export function comparableRules(saved: Readonly<Record<Family, string>>, prefix: string): readonly string[] {
  const keyOf = (line: string) => line.split(" ").slice(0, 3).join(" ");
  return families.flatMap((family) =>
    ownLines(saved[family], prefix)
      .map((line) => `${family} ${line.replace(/ \[\d+:\d+\]$/, "")}`)
      .map((line) => ({ key: keyOf(line.replace(" :", " -A ")), line }))
      .toSorted((one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0))
      .map(({ line }) => line),
  );
}
