import type { RuleList } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { describeInstalled, type MapContents } from "../tables/installed-frontends.ts";
import { describeFrontend, type WantedService } from "../tables/wanted-service.ts";

/** Lists the frontends of Services. */
export function listWanted(services: () => ReadonlyMap<ServiceKey, WantedService>): RuleList {
  const linesOf = (service: ServiceKey): readonly string[] =>
    (services().get(service)?.frontends ?? []).map(describeFrontend).sort();
  return {
    count: () => [...services().values()].reduce((sum, { frontends }) => sum + frontends.length, 0),
    lines: () => [...services().keys()].flatMap(linesOf).sort(),
    linesOf,
  };
}

/** Lists the frontends in the maps, with the names that `services` has for them. */
export function listInstalled(
  family: Family,
  contents: () => MapContents,
  services: () => ReadonlyMap<ServiceKey, WantedService>,
): RuleList {
  const names = (of: Iterable<WantedService>): ReadonlyMap<string, string> =>
    new Map([...of].flatMap(({ frontends }) => frontends.map(({ id, name }) => [id, name] as const)));
  const lines = (known: ReadonlyMap<string, string>, isShown: (id: string) => boolean): readonly string[] =>
    [...describeInstalled(family, contents())]
      .filter(([id]) => isShown(id))
      .map(([id, line]) => `${line} # ${known.get(id) ?? "unknown"}`)
      .sort();
  return {
    count: () => describeInstalled(family, contents()).size,
    lines: () => lines(names(services().values()), () => true),
    linesOf: (service) => {
      const plan = services().get(service);
      const known = names(plan === undefined ? [] : [plan]);
      return lines(known, (id) => known.has(id));
    },
  };
}
