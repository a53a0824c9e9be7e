import type { EndpointConditions, EndpointPort } from "./endpoint.ts";
import type { EndpointUse, ViewEndpoint } from "./node-view.ts";

// Most of what is said of an endpoint is said of very many in the same words: the name of a node, a list of ports, a few
// flags. Who holds very many holds each of these once: a view is a third as large.

/** Most different values of a kind that are remembered: the nodes of the largest clusters. */
const maxShared = 10_000;

/** Equal values, each kept once. What is forgotten when there are too many is only no longer shared. */
class SharedValues<V> {
  readonly #values = new Map<string, V>();

  get(key: string, value: V): V {
    const held = this.#values.get(key);
    if (held !== undefined) return held;
    if (this.#values.size === maxShared) this.#values.clear();
    this.#values.set(key, value);
    return value;
  }
}

const texts = new SharedValues<string>();

/** The same text, as the one object that all who ask for it get. */
export function shareText(text: string): string {
  return texts.get(text, text);
}

const portLists = new SharedValues<readonly EndpointPort[]>();

export function sharePorts(ports: readonly EndpointPort[]): readonly EndpointPort[] {
  return portLists.get(JSON.stringify(ports), ports);
}

const flags = [false, true] as const;

const uses: readonly EndpointUse[] = flags.flatMap((cluster) => flags.map((local) => ({ cluster, local })));

export function shareUse(cluster: boolean, local: boolean): EndpointUse {
  return uses[Number(cluster) * 2 + Number(local)] ?? { cluster, local };
}

const allConditions: readonly EndpointConditions[] = flags.flatMap((ready) =>
  flags.flatMap((serving) => flags.map((terminating) => ({ ready, serving, terminating }))),
);

export function shareConditions(ready: boolean, serving: boolean, terminating: boolean): EndpointConditions {
  const at = Number(ready) * 4 + Number(serving) * 2 + Number(terminating);
  return allConditions[at] ?? { ready, serving, terminating };
}

const allScopes: readonly ViewEndpoint["scopes"][] = flags.flatMap((internal) =>
  flags.map((external) => ({ internal, external })),
);

export function shareScopes(internal: boolean, external: boolean): ViewEndpoint["scopes"] {
  return allScopes[Number(internal) * 2 + Number(external)] ?? { internal, external };
}
