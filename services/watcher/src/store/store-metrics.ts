import { Counter, Gauge, type Registry } from "prom-client";
import type { ShardedMap } from "./sharded-map.ts";
import type { Snapshot } from "./snapshot.ts";
import type { Store } from "./store.ts";
import type { Update } from "./update.ts";

/** What changes are counted by: EndpointSlices by the Service that they are of. */
const kinds = ["services", "endpoints", "nodes"] as const;
const verbs = ["put", "delete"] as const;

/**
 * Measures the cluster's state: its size when it is asked for, and what changed at each revision.
 *
 * *Cost:* of a revision, 1 500 comparisons of pointers and what they lead to; of a scrape, a walk over all slices.
 */
export function observeStore(store: Store, registry: Registry): void {
  const registers = [registry];
  registerSizes(store, registry);
  const changes = new Counter({
    name: "kpng_store_changes_total",
    help: "Services, Services' endpoints and Nodes put or deleted that made a difference, first lists included",
    labelNames: ["kind", "verb"],
    registers,
  });
  for (const kind of kinds) for (const verb of verbs) changes.inc({ kind, verb }, 0);
  store.observe(({ before, next }: Update) => {
    const count = <V>(kind: (typeof kinds)[number], old: ShardedMap<V>, now: ShardedMap<V>): void => {
      for (const key of now.changedKeys(old))
        changes.inc({ kind, verb: now.get(key) === undefined ? "delete" : "put" });
    };
    count("services", before.services, next.services);
    count("endpoints", before.slicesByService, next.slicesByService);
    count("nodes", before.nodes, next.nodes);
  });
}

function registerSizes(store: Store, registry: Registry): void {
  const registers = [registry];
  const gauge = (name: string, help: string, value: (snapshot: Snapshot) => number) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(value(store.snapshot));
      },
    });
  gauge("kpng_store_revision", "Number of the newest state of the cluster, counted from 1", (one) => one.revision);
  gauge("kpng_store_synced", "1 once every kind of object has been listed completely", (one) => Number(one.isSynced));
  gauge(
    "kpng_store_last_change_timestamp_seconds",
    "When the newest state was stored; 0 if there is none",
    ({ storedAtMs }) => storedAtMs / 1_000,
  );
  new Gauge({
    name: "kpng_store_objects",
    help: "Objects that the state of the cluster consists of, by kind",
    labelNames: ["kind"],
    registers,
    collect() {
      for (const [kind, size] of Object.entries(sizesOf(store.snapshot))) this.set({ kind }, size);
    },
  });
}

function sizesOf({ services, slicesByService, nodes }: Snapshot) {
  let sliceCount = 0;
  let endpointCount = 0;
  for (const slices of slicesByService.values()) {
    sliceCount += slices.length;
    for (const { endpoints } of slices) endpointCount += endpoints.length;
  }
  return { services: services.size, slices: sliceCount, endpoints: endpointCount, nodes: nodes.size };
}
