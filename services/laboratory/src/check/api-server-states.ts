import { once } from "node:events";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Laboratory } from "../laboratory.ts";
import { relay, relayIn } from "../relay.ts";
import {
  type EndpointSliceManifest,
  type Manifest,
  nodes,
  type ServiceManifest,
  type State,
} from "../scenario/build.ts";
import type { StateSource } from "./states.ts";

/**
 * Sends a request to an API server. Paths are API paths, and bodies are objects; that of PATCH is a JSON merge patch.
 * Errors: throws if the status is not below 300.
 */
export type ApiCall = (
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
) => Promise<unknown>;

/** States that an API server serves, as in a cluster. It has no controllers, and nothing else writes to it. */
export class ApiServerStates implements StateSource {
  readonly words: Readonly<Record<string, string>>;
  readonly isAtomic = false;
  readonly restart = undefined;
  readonly #call: ApiCall;
  readonly #detach: () => void;
  readonly #onClose: () => Promise<void>;
  /** Paths of the objects that it has created. */
  readonly #created = new Set<string>();
  #applied: State = { services: [], slices: [] };
  #running: Promise<void> = Promise.resolve();

  private constructor({ call, kubeconfig, onClose }: ApiServerOptions, detach: () => void) {
    this.#call = call;
    this.words = { kubeconfig };
    this.#detach = detach;
    this.#onClose = onClose ?? (async () => undefined);
  }

  /**
   * Creates the Nodes, and makes the API server reachable from n1. Errors: the API server has Nodes or Services, so it may
   * be that of a cluster; nothing is written then.
   */
  static async start(laboratory: Laboratory, options: ApiServerOptions): Promise<ApiServerStates> {
    for (const path of ["/api/v1/nodes", "/api/v1/services"]) {
      const { items } = (await options.call("GET", path)) as { readonly items: readonly Manifest[] };
      const present = items.map(({ metadata }) => metadata.name).filter((name) => name !== "kubernetes");
      if (present.length === 0) continue;
      const names = present.slice(0, 5).join(", ");
      throw new Error(`the API server has objects (${path}: ${names}): use an empty one, which belongs to no cluster`);
    }
    const states = new ApiServerStates(options, await bringPortToNode(laboratory, options.port));
    try {
      for (const { status, ...node } of nodes) {
        await states.#create("/api/v1/nodes", node.metadata.name, node);
        await states.#call("PATCH", `/api/v1/nodes/${node.metadata.name}/status`, { status });
      }
      return states;
    } catch (error) {
      await states.close();
      throw error;
    }
  }

  async #create(collection: string, name: string, object: unknown): Promise<void> {
    await this.#call("POST", collection, object);
    this.#created.add(`${collection}/${name}`);
  }

  /** Applies a state with as few calls as possible. Deletions come first, so that addresses and node ports are free. */
  apply(state: State): Promise<void> {
    this.#running = this.#apply(state);
    return this.#running;
  }

  async #apply(state: State): Promise<void> {
    const present = new Map(
      [...this.#applied.services, ...this.#applied.slices].map((object) => [keyOf(object), object]),
    );
    const desired = [...state.services, ...state.slices];
    const keys = new Set(desired.map(keyOf));
    const isReplaced = (object: Manifest): boolean => {
      const old = present.get(keyOf(object));
      return old?.kind === "Service" && object.kind === "Service" && !canBecome(old, object);
    };
    const replaced = new Set(desired.filter(isReplaced).map(keyOf));
    const toDelete = [...present.values()].filter((object) => !keys.has(keyOf(object)) || replaced.has(keyOf(object)));
    await Promise.all(toDelete.map((object) => this.#delete(pathOf(object))));
    const puts = desired.map((object) => {
      const old = replaced.has(keyOf(object)) ? undefined : present.get(keyOf(object));
      return isDeepStrictEqual(old, object) ? undefined : this.#put(object, old);
    });
    await Promise.all(puts);
    this.#applied = state;
  }

  async #delete(path: string): Promise<void> {
    await this.#call("DELETE", path);
    this.#created.delete(path);
  }

  async #put(object: ServiceManifest | EndpointSliceManifest, old: Manifest | undefined): Promise<void> {
    const path = pathOf(object);
    const collection = path.slice(0, path.lastIndexOf("/"));
    if (old === undefined) await this.#create(collection, object.metadata.name, withoutTime(object));
    else await this.#call("PUT", path, withoutTime(object));
    if (object.kind !== "Service" || object.spec.type !== "LoadBalancer") return;
    const { ingress } = object.status.loadBalancer;
    // null removes the field in a merge patch.
    await this.#call("PATCH", `${path}/status`, { status: { loadBalancer: { ingress: ingress ?? null } } });
  }

  log(): string {
    return "";
  }

  /** Deletes what it has created, as far as that is possible. */
  async close(): Promise<void> {
    this.#detach();
    await this.#running.catch(() => undefined);
    for (const path of this.#created) await this.#call("DELETE", path).catch(() => undefined);
    await this.#onClose();
  }
}

interface ApiServerOptions {
  readonly call: ApiCall;
  /** Path of the file with which the proxy reaches the API server. */
  readonly kubeconfig: string;
  /** Port of the API server on the loopback address. */
  readonly port: number;
  /** Called when everything is deleted. Default: does nothing. */
  readonly onClose?: (() => Promise<void>) | undefined;
}

/**
 * Returns whether PUT can turn `old` into the wanted Service. The API server rejects some changes, and others keep old
 * fields.
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
function withoutTime({ metadata, ...object }: ServiceManifest | EndpointSliceManifest): object {
  return { ...object, metadata: { ...metadata, creationTimestamp: undefined } };
}

/**
 * Makes a port of this machine's loopback address reachable as the same port of node n1's loopback address, so that the
 * API server's certificate is valid there. Its packets do not use the laboratory's network. The returned function ends
 * it.
 */
async function bringPortToNode(laboratory: Laboratory, port: number): Promise<() => void> {
  const path = join(laboratory.folder, "api-server.sock");
  const server = relay(path, port);
  await once(server, "listening");
  await relayIn(laboratory, "n1", [port, path]);
  return () => void server.close();
}
