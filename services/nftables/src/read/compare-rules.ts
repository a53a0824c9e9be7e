/** The rules of each chain that has any, as `readRules` returns them. */
export type RulesByChain = ReadonlyMap<string, readonly string[]>;

/**
 * Returns the names of chains whose rules differ, in alphabetical order. `NftTable` calls it to detect changes by other
 * programs, and to name the chains that a sync changed. Elements of sets are compared by `ElementTable` instead.
 */
export function compareRules(a: RulesByChain, b: RulesByChain): readonly string[] {
  const names = [...new Set([...a.keys(), ...b.keys()])].sort();
  return names.filter((name) => a.get(name)?.join("\n") !== b.get(name)?.join("\n"));
}
