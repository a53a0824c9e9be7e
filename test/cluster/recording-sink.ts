import { sliceKey } from "@kpng/model/endpoint.ts";
import { serviceKey } from "@kpng/model/service.ts";
import type { ClusterObjects, ClusterSink, ObjectChange, Origin } from "../../services/watcher/src/source/source.ts";
import { Store } from "../../services/watcher/src/store/store.ts";

/** Summary of one call of a sink. */
export type Given =
  | { readonly kind: "apply"; readonly changes: readonly ObjectChange[] }
  | { readonly kind: "replace"; readonly objects: ClusterObjects };

/** Store that records every call and checks a rule on the state after each of them. */
export class RecordingSink implements ClusterSink {
  readonly store = new Store();
  readonly calls: Given[] = [];
  /** Violations of the rule, one entry per call that caused one. */
  readonly violations: string[] = [];
  /** Returns the problem of the state, or undefined. */
  rule: (sink: RecordingSink) => string | undefined = () => undefined;

  apply(changes: readonly ObjectChange[]): void {
    this.store.apply(changes);
    this.#called({ kind: "apply", changes });
  }

  replace(objects: ClusterObjects, origin?: Origin): void {
    this.store.replace(objects, origin);
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

  /** All addresses of the endpoints of a Service, sorted. */
  addressesOf(service: `${string}/${string}`): readonly string[] {
    const slices = this.store.snapshot.slicesByService.get(service) ?? [];
    return slices
      .flatMap((slice) => slice.endpoints)
      .flatMap(({ addresses }) => [...addresses.v4, ...addresses.v6])
      .sort();
  }

  /** Number of times that a list replaced a whole kind. */
  replaceCountOf(kind: keyof ClusterObjects): number {
    return this.calls.filter((call) => call.kind === "replace" && call.objects[kind] !== undefined).length;
  }

  #called(call: Given): void {
    this.calls.push(call);
    const violation = this.rule(this);
    if (violation !== undefined) this.violations.push(`call ${this.calls.length}: ${violation}`);
  }
}
