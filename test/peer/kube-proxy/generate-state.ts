import type { KubeObject } from "../../cluster/api-client.ts";
import { Dice } from "./dice.ts";
import { type GeneratedService, makeService } from "./generate-service.ts";
import { makeNameSlice, makeSlices } from "./generate-slices.ts";

/** Independent cluster state: the content of one namespace. */
export interface GeneratedState {
  readonly number: number;
  readonly namespace: string;
  readonly service: GeneratedService;
  /** Objects that do not affect the Service. */
  readonly others: readonly KubeObject[];
  readonly slices: readonly KubeObject[];
}

/** Returns state `number` of a seed, which does not depend on the number of states. */
export function generateState(seed: number, number: number): GeneratedState {
  const dice = new Dice(Math.imul(seed, 0x9e3779b1) + Math.imul(number, 0x85ebca6b));
  const namespace = `s${number}`;
  const service = makeService(dice, namespace, number);
  const { ports } = service;
  const others: KubeObject[] = [];
  const slices = makeSlices(dice, { namespace, service: "web", ports });
  if (dice.chance(10)) slices.push(makeNameSlice({ namespace, service: "web", ports }));
  if (dice.chance(10)) slices.push(...makeSlices(dice, { namespace, service: "gone", ports }));
  if (dice.chance(10)) slices.push(...makeSlices(dice, { namespace, service: undefined, ports }));
  if (dice.chance(15)) {
    others.push(makeOther(namespace, "headless", { clusterIP: "None", ports: [{ name: "http", port: 80 }] }));
    const labels = { "service.kubernetes.io/headless": "" };
    slices.push(...makeSlices(dice, { namespace, service: "headless", ports, labels }));
  }
  if (dice.chance(10)) {
    const spec = { type: "ExternalName", externalName: "one.example.org", ports: [{ port: 80 }] };
    others.push(makeOther(namespace, "name", spec));
    slices.push(...makeSlices(dice, { namespace, service: "name", ports }));
  }
  return { number, namespace, service, others, slices };
}

function makeOther(namespace: string, name: string, spec: unknown): KubeObject {
  return { apiVersion: "v1", kind: "Service", metadata: { name, namespace }, spec };
}
