import type { EndpointConditions, EndpointPort } from "./endpoint.ts";
import type { EndpointUse, ViewEndpoint } from "./node-view.ts";

/** Maximum number of shared values of each kind: more than the number of nodes in the largest clusters. */
const maxShared = 10_000;

/**
 * One object for each distinct value.
 *
 * *Bound:* `maxShared` values. Beyond that, all values are forgotten; values in use stay valid but are no longer
 * shared.
 */
class SharedValues<V> {
  readonly #values = new Map<string, V>();

  get(key: string, value: V): V {
    const existing = this.#values.get(key);
    if (existing !== undefined) return existing;
    if (this.#values.size === maxShared) this.#values.clear();
    this.#values.set(key, value);
    return value;
  }
}

const texts = new SharedValues<string>();

/**
 * Returns an equal string: the same copy for all calls with equal strings.
 *
 * Endpoints have many values in common: node names, port lists, flags. With one object for all equal values, a view
 * takes a third of the memory.
 */
export function shareText<Text extends string>(text: Text): Text {
  return texts.get(text, text) as Text;
}

const portLists = new SharedValues<readonly EndpointPort[]>();

/** Returns an equal list: the same object for all calls with equal ports. */
export function sharePorts(ports: readonly EndpointPort[]): readonly EndpointPort[] {
  return portLists.get(JSON.stringify(ports), ports);
}

const flags = [false, true] as const;

// One object for each combination of flags.
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
