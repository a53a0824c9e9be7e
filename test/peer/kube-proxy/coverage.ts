import { families } from "@kpng/model/address.ts";
import { slicesOf } from "../../../services/watcher/src/store/snapshot.ts";
import type { ChoosingNode } from "../../../services/watcher/src/view/choose-endpoints.ts";
import { mergeSlices, portGroup } from "../../../services/watcher/src/view/merge-slices.ts";
import { choosingNode } from "../../../services/watcher/src/view/node.ts";
import { type Choosing, choiceFeatures } from "./features.ts";
import type { GeneratedState } from "./generate-state.ts";
import { objectFeatures, toFeatureState } from "./object-features.ts";
import type { OurSide } from "./read-views.ts";

/** Number of states that showed each feature. */
export type Coverage = ReadonlyMap<string, number>;

/** Counts the features in the states of a run. */
export function coverageOf(states: readonly GeneratedState[], ours: OurSide): Coverage {
  const counts = new Map([...Object.keys(choiceFeatures), ...Object.keys(objectFeatures)].map((name) => [name, 0]));
  const count = <T>(features: Readonly<Record<string, (item: T) => boolean>>, items: readonly T[]): void => {
    for (const [name, shows] of Object.entries(features)) {
      if (items.some(shows)) counts.set(name, (counts.get(name) ?? 0) + 1);
    }
  };
  for (const state of states) {
    count(objectFeatures, [toFeatureState(state)]);
    count(choiceFeatures, [...choices(state, ours)]);
  }
  return counts;
}

function* choices({ namespace }: GeneratedState, { snapshot, views }: OurSide): Iterable<Choosing> {
  const service = snapshot.services.get(`${namespace}/web`);
  if (service === undefined || service.proxyName !== "") return;
  const { groups } = mergeSlices(slicesOf(snapshot, `${namespace}/web`));
  for (const [nodeName, view] of views) {
    const node: ChoosingNode = choosingNode(snapshot, nodeName);
    for (const port of service.ports) {
      for (const family of families) {
        if (service.clusterIPs?.[family].length === 0) continue;
        const group = portGroup(family, { name: port.name, protocol: port.protocol, port: 1 });
        yield { service, port, family, node, view, facets: groups.get(group) ?? [] };
      }
    }
  }
}

export function describeCoverage(coverage: Coverage): string {
  return [...coverage].map(([name, count]) => `${String(count).padStart(7)}  ${name}`).join("\n");
}
