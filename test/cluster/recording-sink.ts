import { sliceKey } from "@kpng/model/endpoint.ts";
import { serviceKey } from "@kpng/model/service.ts";
import type { ClusterObjects, ClusterSink, ObjectChange } from "../../services/watcher/src/source/source.ts";
import { Store } from "../../services/watcher/src/store/store.ts";

/** What was given to a sink in one call, in short. */
export type Given =
  | { readonly kind: "apply"; readonly changes: readonly ObjectChange[] }
  | { readonly kind: "replace"; readonly objects: ClusterObjects };

/** A store that remembers every call and lets a rule look at the state after each one. */
export class RecordingSink implements ClusterSink {
  readonly store = new Store();
  readonly calls: Given[] = [];
  /** What the rule had to say, per call. */
  readonly violations: string[] = [];
  /** Returns what is wrong with the state, or undefined. */
  rule: (sink: RecordingSink) => string | undefined = () => undefined;

  apply(changes: readonly ObjectChange[]): void {
    this.store.apply(changes);
    this.#called({ kind: "apply", changes });
  }

  replace(objects: ClusterObjects): void {
    this.store.replace(objects);
    this.#called({ kind: "replace", objects });
  }

  /** Keys of the Services: `namespace/name`, sorted. */
  get services(): readonly string[] {
    return [...this.store.snapshot.services.values()].map(serviceKey).sort();
  }

  /** Keys of the slices: `namespace/service/name`, sorted. */
  get slices(): readonly string[] {
    return [...this.store.snapshot.slicesByService.values()].flat().map(sliceKey).sort();
  }

  get nodes(): readonly string[] {
    return [...this.store.snapshot.nodes.values()].map((node) => node.name).sort();
  }

  /** Every address of the endpoints of a Service, sorted. */
  addressesOf(service: `${string}/${string}`): readonly string[] {
    const slices = this.store.snapshot.slicesByService.get(service) ?? [];
    return slices
      .flatMap((slice) => slice.endpoints)
      .flatMap(({ addresses }) => [...addresses.v4, ...addresses.v6])
      .sort();
  }

  /** How often a kind was replaced as a whole. */
  replaceCountOf(kind: keyof ClusterObjects): number {
    return this.calls.filter((call) => call.kind === "replace" && call.objects[kind] !== undefined).length;
  }

  #called(call: Given): void {
    this.calls.push(call);
    const violation = this.rule(this);
    if (violation !== undefined) this.violations.push(`call ${this.calls.length}: ${violation}`);
  }
}
