import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { ObjectChange } from "../../services/watcher/src/source/source.ts";
import {
  makeEndpoint,
  makeEndpoints,
  makeService,
  makeSlices,
  namespace,
  type SyntheticShape,
  withReadiness,
} from "./synthetic.ts";

/** A change mix: calls of `Store.apply`, each of which is one change, with the time between them. */
export interface Script {
  /** Done before the clock runs, and seen by all streams. */
  readonly before: readonly ObjectChange[];
  readonly steps: readonly (readonly ObjectChange[])[];
  readonly stepsPerSecond: number;
  /** Leaves the cluster as it was. */
  readonly after: readonly ObjectChange[];
}

export type ScriptName = "rolling" | "drain" | "churn20" | "churn1000" | "burst";

/** Seconds of each churn. */
const churnSeconds = 5;

/** Spreads consecutive changes over the Services; a prime, so that all get their turn. */
const stride = 7_919;

export function makeScript(name: ScriptName, shape: SyntheticShape): Script {
  switch (name) {
    case "rolling":
      return rollingUpdate(shape);
    case "drain":
      return nodeDrain(shape);
    case "churn20":
      return churn(20, shape);
    case "churn1000":
      return churn(1_000, shape);
    case "burst":
      return burst(shape);
  }
}

/** The change with number `index`: an endpoint is no longer ready, and with the next number is ready again. */
export function endpointChange(index: number, shape: SyntheticShape): ObjectChange {
  const pair = Math.floor(index / 2);
  const service = (pair * stride) % shape.services;
  const [slice] = makeSlices(`service-${service}`, makeEndpoints(service, shape));
  if (slice === undefined) throw new Error("a cluster without endpoints");
  return { kind: "put-slice", slice: withReadiness(slice, pair % slice.endpoints.length, index % 2 === 1) };
}

/**
 * Pods of one Service after the other get another address, as if they had been restarted in place.
 *
 * No change undoes an earlier one: a stream that is late and finds two that cancel each other is told of neither, and
 * the age of its next batch would say nothing.
 */
function churn(perSecond: number, shape: SyntheticShape): Script {
  return { before: [], ...churnOf(perSecond * churnSeconds, shape), stepsPerSecond: perSecond };
}

function churnOf(count: number, shape: SyntheticShape): Pick<Script, "steps" | "after"> {
  const steps: ObjectChange[][] = [];
  const touched = new Map<string, EndpointSlice>();
  for (let index = 0; index < count; index += 1) {
    const service = (index * stride) % shape.services;
    const [slice] = makeSlices(`service-${service}`, makeEndpoints(service, shape));
    const [first, ...others] = slice?.endpoints ?? [];
    if (slice === undefined || first === undefined) throw new Error("a cluster without endpoints");
    touched.set(slice.name, slice);
    const address = `11.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;
    const endpoints = [{ ...first, addresses: { v4: [address], v6: [] } }, ...others];
    steps.push([{ kind: "put-slice", slice: { ...slice, endpoints } }]);
  }
  const after = [...touched.values()].map((slice): ObjectChange => ({ kind: "put-slice", slice }));
  return { steps, after };
}

/** A pod of every Service gets another address, all at once: what a source finds that comes back after a while. */
function burst(shape: SyntheticShape): Script {
  const { steps, after } = churnOf(shape.services, shape);
  return { before: [], steps: [steps.flat()], stepsPerSecond: 1, after };
}

/** A Deployment of 1 000 pods gets a new version: ten pods at a time, each slice by itself, 50 times a second. */
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

/** All endpoints of one node go, each with a change of its own, 500 a second. */
function nodeDrain(shape: SyntheticShape): Script {
  const drained = "node-1";
  const steps: ObjectChange[][] = [];
  const after: ObjectChange[] = [];
  for (let service = 0; service < shape.services; service += 1) {
    for (const whole of makeSlices(`service-${service}`, makeEndpoints(service, shape))) {
      let slice = whole;
      for (const { nodeName, podName } of whole.endpoints) {
        if (nodeName !== drained) continue;
        slice = { ...slice, endpoints: slice.endpoints.filter((endpoint) => endpoint.podName !== podName) };
        steps.push([{ kind: "put-slice", slice }]);
      }
      if (slice !== whole) after.push({ kind: "put-slice", slice: whole });
    }
  }
  return { before: [], steps, stepsPerSecond: 500, after };
}
