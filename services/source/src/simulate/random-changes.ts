import { shareConditions } from "@kpng/model/shared-values.ts";
import { makeRandomBelow } from "@kpng/process/random.ts";
import type { ObjectChange } from "../source.ts";
import { makeEndpoints, makeService, makeSlices, namespace, type SyntheticShape } from "./synthetic.ts";

/** Kind of a simulated change. */
export type ChangeKind = "readiness" | "rollout" | "deletion" | "creation";

/** A simulated change: what happened, and the changes of objects to apply together. */
interface SimulatedChange {
  readonly kind: ChangeKind;
  /** *Shape:* `service-17`. */
  readonly service: string;
  readonly changes: readonly ObjectChange[];
}

/** State of a Service that differs from the synthetic cluster's first one. */
interface ServiceState {
  generation: number;
  /** Index of the endpoint that is not ready; undefined if all are. */
  unready: number | undefined;
  isDeleted: boolean;
}

/**
 * Yields an endless sequence of changes: 80 % change the readiness of an endpoint, 15 % replace all pods of a Service,
 * and 5 % delete a Service or create it again. At most a tenth of the Services is deleted at a time. The sequence
 * depends only on the shape and on `random`, which returns numbers from 0 up to but not including 1.
 */
export function* randomChanges(shape: SyntheticShape, random: () => number): Generator<SimulatedChange, never, void> {
  const states = new Map<number, ServiceState>();
  const deleted: number[] = [];
  const below = makeRandomBelow(random);
  const slicesOf = (index: number, { generation, unready }: ServiceState) => {
    const conditions = shareConditions(false, false, false);
    const endpoints = makeEndpoints(index, shape, generation).map((endpoint, at) =>
      at === unready ? { ...endpoint, conditions } : endpoint,
    );
    return makeSlices(`service-${index}`, endpoints).map((slice): ObjectChange => ({ kind: "put-slice", slice }));
  };
  for (;;) {
    const kind = below(20);
    const again = kind === 19 && (deleted.length > shape.services / 10 || below(2) === 0) ? deleted.shift() : undefined;
    const index = again ?? below(shape.services);
    const state = states.get(index) ?? { generation: 0, unready: undefined, isDeleted: false };
    // Only `again` may name a deleted Service.
    if (state.isDeleted && again === undefined) continue;
    states.set(index, state);
    const service = `service-${index}`;
    if (again !== undefined) {
      state.isDeleted = false;
      const put: ObjectChange = { kind: "put-service", service: makeService(index) };
      yield { kind: "creation", service, changes: [put, ...slicesOf(index, state)] };
    } else if (kind === 19) {
      if (deleted.length >= shape.services / 10) continue;
      state.isDeleted = true;
      deleted.push(index);
      const slices = makeSlices(service, makeEndpoints(index, shape));
      const gone = slices.map(
        ({ name }): ObjectChange => ({ kind: "delete-slice", key: `${namespace}/${service}/${name}` }),
      );
      yield {
        kind: "deletion",
        service,
        changes: [{ kind: "delete-service", key: `${namespace}/${service}` }, ...gone],
      };
    } else if (kind >= 16) {
      state.generation += 1;
      yield { kind: "rollout", service, changes: slicesOf(index, state) };
    } else if (shape.endpoints > 0) {
      state.unready = state.unready === undefined ? below(shape.endpoints) : undefined;
      yield { kind: "readiness", service, changes: slicesOf(index, state) };
    }
  }
}
