import type { Scenario, Update } from "./scenario.ts";
import { scenarios } from "./scenarios.ts";
import { updates } from "./updates.ts";

/** Whether all cases run: `npm run test:all` sets KPNG_TESTS=all. */
export const isEverything = process.env.KPNG_TESTS === "all";

/**
 * Names of the scenarios and updates that `npm test` runs with kpng-ipvs and kpng-userspace: those in which proxies
 * differ most. `npm run test:all` runs all.
 */
export const selectedNames: readonly string[] = [
  "a node port",
  "external policy Local with an endpoint on the node",
  "external policy Local without an endpoint on the node",
  "external policy Local with source ranges",
  "internal policy Local without an endpoint on the node",
  "no endpoint",
  "policy DROP in INPUT",
  "session affinity",
  "an endpoint is removed",
  "an endpoint terminates",
  "the last endpoint is removed",
  "session affinity is enabled",
  "the endpoint of clients with affinity is removed",
];

const isSelected = ({ name }: { readonly name: string }): boolean => isEverything || selectedNames.includes(name);

/** The scenarios and updates of this run. */
export const selected: { readonly scenarios: readonly Scenario[]; readonly updates: readonly Update[] } = {
  scenarios: scenarios.filter(isSelected),
  updates: updates.filter(isSelected),
};
