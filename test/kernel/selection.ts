import { idOf } from "@kpng/laboratory/check/packet-cases.ts";
import { scenarios } from "@kpng/laboratory/scenario/scenarios.ts";
import { updates } from "@kpng/laboratory/scenario/updates.ts";

/** Whether all cases run: `npm run test:all` sets KPNG_TESTS=all. */
export const isEverything = process.env.KPNG_TESTS === "all";

/**
 * Names of the scenarios and updates that `npm test` runs with kpng-ipvs and kpng-userspace: those in which proxies
 * differ most. `npm run test:all` runs all.
 */
const selectedNames: readonly string[] = [
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

/** The cases of `kpng conformance packets` for these, and the cleanup; `npm run test:all` runs all. */
export const selectedCases: readonly string[] = [
  ...scenarios.filter(isSelected).map((scenario) => idOf("scenario", scenario)),
  ...updates.filter(isSelected).map((update) => idOf("update", update)),
  "cleanup",
];

function isSelected({ name }: { readonly name: string }): boolean {
  return isEverything || selectedNames.includes(name);
}
