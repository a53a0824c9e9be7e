import { scenarios } from "../../scenario/scenarios.ts";
import { updates } from "../../scenario/updates.ts";

/** Names of all scenarios and updates. */
export const scenarioNames: readonly string[] = [...scenarios, ...updates].map(({ name }) => name);

/**
 * Returns the names that a run has: those that match the regular expression `KPNG_IPVS_SCENARIOS`, or the quick ones.
 * Errors: there is no scenario or check of a quick name, which was renamed.
 */
export function wantedNames(names: readonly string[], quick: ReadonlySet<string>): readonly string[] {
  const unknown = [...quick].filter((name) => !names.includes(name));
  if (unknown.length > 0) throw new Error(`no such scenario or check: ${unknown.join("; ")}`);
  const wanted = process.env.KPNG_IPVS_SCENARIOS;
  return names.filter((name) => (wanted === undefined ? quick.has(name) : new RegExp(wanted).test(name)));
}
