import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { ApiClient, KubeObject } from "../../cluster/api-client.ts";
import { relay, relayIn } from "../../cluster/relay.ts";
import type { EndpointSliceManifest, Manifest, NodeManifest, ServiceManifest, State } from "../../scenario/manifest.ts";

/** Writes the states of scenarios to an API server, one after the other, with as few calls as possible. */
export class ApiState {
  readonly #api: ApiClient;
  #held: State = { services: [], slices: [] };

  constructor(api: ApiClient) {
    this.#api = api;
  }

  async createNodes(nodes: readonly NodeManifest[]): Promise<void> {
    for (const { status, ...node } of nodes) {
      await this.#api.create("/api/v1/nodes", node);
      await this.#api.patch(`/api/v1/nodes/${node.metadata.name}/status`, { status });
    }
  }

  /** Applies a state. Deletions come first, so that their addresses and node ports are free. */
  async apply(state: State): Promise<void> {
    const held = new Map([...this.#held.services, ...this.#held.slices].map((object) => [keyOf(object), object]));
    const wanted = [...state.services, ...state.slices];
    const keys = new Set(wanted.map(keyOf));
    const isReplaced = (object: Manifest): boolean => {
      const old = held.get(keyOf(object));
      return old?.kind === "Service" && object.kind === "Service" && !canBecome(old, object);
    };
    const replaced = new Set(wanted.filter(isReplaced).map(keyOf));
    const toDelete = [...held.values()].filter((object) => !keys.has(keyOf(object)) || replaced.has(keyOf(object)));
    await Promise.all(toDelete.map((object) => this.#api.delete(pathOf(object))));
    const puts = wanted.map((object) => {
      const old = replaced.has(keyOf(object)) ? undefined : held.get(keyOf(object));
      return isDeepStrictEqual(old, object) ? undefined : this.#put(object, old);
    });
    await Promise.all(puts);
    this.#held = state;
  }

  async #put(object: ServiceManifest | EndpointSliceManifest, old: Manifest | undefined): Promise<void> {
    const path = pathOf(object);
    if (old === undefined) await this.#api.create(path.slice(0, path.lastIndexOf("/")), toKubeObject(object));
    else await this.#api.call("PUT", path, toKubeObject(object));
    if (object.kind !== "Service" || object.spec.type !== "LoadBalancer") return;
    const { ingress } = object.status.loadBalancer;
    // null removes the field in a merge patch.
    await this.#api.patch(`${path}/status`, { status: { loadBalancer: { ingress: ingress ?? null } } });
  }
}

/**
 * Returns whether a patch gives the wanted Service. The API server rejects some changes, and others keep old fields.
 */
function canBecome(old: ServiceManifest, wanted: ServiceManifest): boolean {
  const fixed = ({ spec }: ServiceManifest) => [spec.type, spec.clusterIPs, spec.healthCheckNodePort];
  return isDeepStrictEqual(fixed(old), fixed(wanted));
}

function keyOf({ kind, metadata }: Manifest): string {
  return `${kind}/${metadata.name}`;
}

function pathOf({ kind, metadata }: Manifest): string {
  switch (kind) {
    case "Service":
      return `/api/v1/namespaces/default/services/${metadata.name}`;
    case "EndpointSlice":
      return `/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/${metadata.name}`;
    case "Node":
      return `/api/v1/nodes/${metadata.name}`;
  }
}

/** The API server sets the time of creation itself, and rejects a change of it. */
function toKubeObject({ metadata, ...object }: ServiceManifest | EndpointSliceManifest): KubeObject {
  const { name, namespace, labels } = metadata;
  return { ...object, metadata: { name, namespace, labels } };
}

/**
 * Makes a port of this machine's loopback address reachable as the same port of node n1's loopback address, so that the
 * API server's certificate is valid there. Its packets do not use the laboratory's network. The returned function ends
 * it.
 */
export async function bringPortToNode(laboratory: Laboratory, port: number): Promise<() => void> {
  const path = join(laboratory.folder, "api-server.sock");
  const server = relay(path, port);
  await relayIn(laboratory, "n1", [port, path]);
  return () => void server.close();
}
