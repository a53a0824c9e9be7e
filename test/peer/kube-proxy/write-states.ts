import type { ApiClient, KubeObject } from "../../cluster/api-client.ts";
import { slicesPath } from "../../cluster/objects.ts";
import type { GeneratedState } from "./generate-state.ts";
import { nodeAddress, nodes } from "./world.ts";

/** Creates the Nodes of `world.ts`. */
export async function writeNodes(api: ApiClient): Promise<void> {
  for (const { name, zone } of nodes) {
    const labels = {
      "kubernetes.io/hostname": name,
      ...(zone === undefined ? {} : { "topology.kubernetes.io/zone": zone }),
    };
    await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name, labels } });
    const addresses = (["v4", "v6"] as const).map((family) => ({
      type: "InternalIP",
      address: nodeAddress(name, family),
    }));
    await api.patch(`/api/v1/nodes/${name}/status`, { status: { addresses } });
  }
}

/**
 * Creates the namespaces and objects of the states, several at a time.
 *
 * Errors: the API server rejects an object; with that object.
 */
export async function writeStates(api: ApiClient, states: readonly GeneratedState[]): Promise<void> {
  const waiting = states.values();
  const worker = async (): Promise<void> => {
    for (const state of waiting) await writeState(api, state);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

async function writeState(api: ApiClient, { namespace, service, others, slices }: GeneratedState): Promise<void> {
  const create = async (collection: string, object: KubeObject): Promise<void> => {
    try {
      await api.create(collection, object);
    } catch (cause) {
      throw new Error(`the API server rejected ${JSON.stringify(object)}`, { cause });
    }
  };
  const services = `/api/v1/namespaces/${namespace}/services`;
  await create("/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
  for (const object of [service.object, ...others]) await create(services, object);
  for (const slice of slices) await create(slicesPath(namespace), slice);
  if (service.status !== undefined) await api.patch(`${services}/web/status`, { status: service.status });
  if (service.isLeaving) await api.delete(`${services}/web`);
}
