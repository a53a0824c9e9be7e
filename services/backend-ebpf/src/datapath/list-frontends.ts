import type { RuleList } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { describeInstalled } from "../tables/installed-frontends.ts";
import { describeFrontend, type WantedFrontend } from "../tables/wanted-service.ts";
import type { EbpfMaps } from "./maps.ts";

type Services = ReadonlyMap<ServiceKey, readonly WantedFrontend[]>;

/**
 * Lists the frontends of Services for inspection (`kpng get rules`). `SocketRuleSet` and `PrintedSockets` return it as
 * their desired rules.
 */
export function listWanted(services: Services): RuleList {
  const linesOf = (service: ServiceKey): readonly string[] =>
    (services.get(service) ?? []).map(describeFrontend).sort();
  return {
    count: () => [...services.values()].reduce((sum, frontends) => sum + frontends.length, 0),
    lines: () => [...services.keys()].flatMap(linesOf).sort(),
    linesOf,
  };
}

/**
 * Lists the frontends in the maps, with the names that `services` has for them; the counterpart of {@link listWanted}.
 */
export function listInstalled(family: Family, maps: EbpfMaps | undefined, services: Services): RuleList {
  const installed = (): ReadonlyMap<string, string> =>
    maps === undefined ? new Map() : describeInstalled(family, maps.contents());
  const names = (of: readonly WantedFrontend[]): ReadonlyMap<string, string> =>
    new Map(of.map(({ key, name }) => [key, name]));
  const lines = (known: ReadonlyMap<string, string>, isShown: (id: string) => boolean): readonly string[] =>
    [...installed()]
      .filter(([id]) => isShown(id))
      .map(([id, line]) => `${line} # ${known.get(id) ?? "unknown"}`)
      .sort();
  return {
    count: () => installed().size,
    lines: () => lines(names([...services.values()].flat()), () => true),
    linesOf: (service) => {
      const known = names(services.get(service) ?? []);
      return lines(known, (id) => known.has(id));
    },
  };
}
