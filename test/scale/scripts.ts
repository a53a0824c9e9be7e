import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { ObjectChange } from "@kpng/watcher/source/source.ts";
import {
  makeEndpoint,
  makeEndpoints,
  makeService,
  makeSlices,
  namespace,
  type SyntheticShape,
  withReadiness,
} from "./synthetic.ts";

/** A mix of changes: calls of `Store.apply`, one per change, with the interval between them. */
export interface Script {
  /** Changes before the measurement; all streams receive them first. */
  readonly before: readonly ObjectChange[];
  readonly steps: readonly (readonly ObjectChange[])[];
  readonly stepsPerSecond: number;
  /** Changes that restore the cluster. */
  readonly after: readonly ObjectChange[];
}

export type ScriptName = "rolling" | "churn";

/** Distance between the Services of consecutive changes; a prime, so that every Service is reached. */
const stride = 7_919;

export function makeScript(name: ScriptName, shape: SyntheticShape): Script {
  return name === "rolling" ? rollingUpdate(shape) : churn(shape);
}

/** Returns change number `index`: an even one makes an endpoint unready, and the next one makes it ready again. */
export function endpointChange(index: number, shape: SyntheticShape): ObjectChange {
  const pair = Math.floor(index / 2);
  const service = (pair * stride) % shape.services;
  const [slice] = makeSlices(`service-${service}`, makeEndpoints(service, shape));
  if (slice === undefined) throw new Error("the cluster has no endpoints");
  return { kind: "put-slice", slice: withReadiness(slice, pair % slice.endpoints.length, index % 2 === 1) };
}

/**
 * Changes the address of a pod in one Service after the other, like restarts in place: 5 000 times, 1 000 a second.
 *
 * No change undoes an earlier one: a late stream would receive neither of two changes that cancel each other, and the
 * age of its next batch would be meaningless.
 */
function churn(shape: SyntheticShape): Script {
  const steps: ObjectChange[][] = [];
  const touched = new Map<string, EndpointSlice>();
  for (let index = 0; index < 5_000; index += 1) {
    const service = (index * stride) % shape.services;
    const [slice] = makeSlices(`service-${service}`, makeEndpoints(service, shape));
    const [first, ...others] = slice?.endpoints ?? [];
    if (slice === undefined || first === undefined) throw new Error("the cluster has no endpoints");
    touched.set(slice.name, slice);
    const address = `11.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;
    const endpoints = [{ ...first, addresses: { v4: [address], v6: [] } }, ...others];
    steps.push([{ kind: "put-slice", slice: { ...slice, endpoints } }]);
  }
  const after = [...touched.values()].map((slice): ObjectChange => ({ kind: "put-slice", slice }));
  return { before: [], steps, stepsPerSecond: 1_000, after };
}

/** Updates a Deployment of 1 000 pods: ten pods at a time, each slice separately, 50 changes a second. */
function rollingUpdate(shape: SyntheticShape): Script {
  const pods = 1_000;
  const atOnce = 10;
  const name = "rolled";
  const first = shape.services * shape.endpoints;
  const endpoints = Array.from({ length: pods }, (_, pod) => makeEndpoint(`${name}-5d9f8c7b6`, first + pod, shape));
  const put = (slice: EndpointSlice): ObjectChange => ({ kind: "put-slice", slice });
  const service: ObjectChange = { kind: "put-service", service: { ...makeService(shape.services), name } };
  const before = [service, ...makeSlices(name, endpoints).map(put)];
  const steps: ObjectChange[][] = [];
  for (let pod = 0; pod < pods; pod += atOnce) {
    const touched = Math.floor(pod / 100);
    for (let index = pod; index < pod + atOnce; index += 1) {
      endpoints[index] = makeEndpoint(`${name}-7b8c9d5f6`, first + pods + index, shape);
    }
    steps.push(
      makeSlices(name, endpoints)
        .slice(touched, touched + 1)
        .map(put),
    );
  }
  const after: ObjectChange[] = makeSlices(name, endpoints).map(({ name: slice }) => ({
    kind: "delete-slice",
    key: `${namespace}/${name}/${slice}`,
  }));
  return {
    before,
    steps,
    stepsPerSecond: 50,
    after: [...after, { kind: "delete-service", key: `${namespace}/${name}` }],
  };
}
