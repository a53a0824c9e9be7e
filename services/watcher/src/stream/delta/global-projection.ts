import { compareText } from "@kpng/model/collections.ts";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { formatHash } from "@kpng/model/wire/digest.ts";
import {
  encodeClusterInfo,
  encodeEndpointInfo,
  encodeNodeInfo,
  encodeServiceInfo,
  endpointInfoHash,
} from "@kpng/model/wire/global-message.ts";
import { deleteFrame, type Frame, setFrame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import { deletedItems, diffItems, sortByPath } from "../../items/service-items.ts";
import { changedServices } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";
import { joinFrames, noChanges, type Projection, pause } from "./projection.ts";

/**
 * The state of the whole cluster, for relays (watchers whose source is this watcher). KPNG's relays ignore proxy names,
 * so a subscriber without the extended feature gets only the Services of one proxy name, with their endpoints.
 *
 * Objects are compared and encoded only while the frames are read, except that `between` searches for the first
 * difference, to recognize an empty batch.
 */
export function globalProjection(request: GlobalRequest): Projection {
  return {
    whole: (snapshot) => joinFrames(changedFrames(emptySnapshot, snapshot, request)),
    between(before, snapshot) {
      const isEmpty = changedFrames(before, snapshot, request).every((frame) => frame === pause);
      return isEmpty ? noChanges : joinFrames(changedFrames(before, snapshot, request));
    },
  };
}

/** The changes of all objects, phase by phase. Within a phase, puts ascend by path and deletes descend. */
function* changedFrames(before: Snapshot, snapshot: Snapshot, request: GlobalRequest): Generator<Frame, void> {
  let count = 0;
  for (const { kind, section } of order.phases) {
    const prefixes = [...new Set(changedKeys(before, snapshot, section))].map((key) => ({
      key,
      prefix: prefixOf(section, key),
    }));
    const sorted = prefixes.sort((a, b) => compareText(a.prefix, b.prefix));
    for (const { key } of kind === "put" ? sorted : sorted.reverse()) {
      const diff = diffItems(itemsOf(before, section, key, request), itemsOf(snapshot, section, key, request));
      if (kind === "put") for (const { frame } of diff.added) yield frame;
      else {
        for (const { path } of deletedItems(diff).toReversed()) yield deleteFrame(order.sections[section] ?? 0, path);
      }
      count += 1;
      if (count % keysPerPause === 0) yield pause;
    }
  }
}

/** Number of objects that are compared before other work gets a turn; comparing them takes a few milliseconds. */
const keysPerPause = 100;

// Indexes into `order.sections`.
const nodes = 0;
const services = 1;
const endpoints = 2;
const cluster = 3;

/** KPNG's order (`store2globaldiff.go:87`). */
const order: Order = {
  sections: [
    SetName.GlobalNodeInfos,
    SetName.GlobalServiceInfos,
    SetName.GlobalEndpointInfos,
    SetName.GlobalClusterInfos,
  ],
  phases: [
    { kind: "put", section: cluster },
    { kind: "put", section: nodes },
    { kind: "put", section: services },
    { kind: "put", section: endpoints },
    { kind: "delete", section: endpoints },
    { kind: "delete", section: services },
    { kind: "delete", section: nodes },
    { kind: "delete", section: cluster },
  ],
};

interface GlobalRequest {
  readonly isExtended: boolean;
  /** Proxy name of the Services that a subscriber without the extended feature receives. */
  readonly proxyName: string;
}

/** Returns the path prefix that all items of an object in a section share, and that no other items have. */
function prefixOf(section: number, key: string): string {
  // The separator affects the order: "a-b" comes after "a", but "a-b|" comes before "a|".
  return section === services || section === endpoints ? `${key.replace("/", "|")}|` : key;
}

function changedKeys(before: Snapshot, snapshot: Snapshot, section: number): Iterable<string> {
  if (section === cluster) return before.serviceCIDRs === snapshot.serviceCIDRs ? [] : [""];
  if (section === nodes) return snapshot.nodes.changedKeys(before.nodes);
  // If a Service changes its proxy name, its slices appear or disappear with it.
  return section === services ? snapshot.services.changedKeys(before.services) : changedServices(before, snapshot);
}

/** Returns the items of an object or a Service in one section, ascending by path. */
function itemsOf(snapshot: Snapshot, section: number, key: string, request: GlobalRequest): readonly Item[] {
  const { isExtended } = request;
  if (section === cluster) {
    const cidrs = isExtended ? snapshot.serviceCIDRs : [];
    return cidrs.length === 0 ? [] : [makeItem(cluster, "|||", encodeClusterInfo(cidrs))];
  }
  if (section === nodes) {
    const node = snapshot.nodes.get(key);
    return node === undefined ? [] : [makeItem(nodes, `|${key}||`, encodeNodeInfo(node, isExtended))];
  }
  if (!isSelected(snapshot, key, request)) return [];
  if (section === endpoints) {
    const slices = snapshot.slicesByService.get(key) ?? [];
    return sortByPath(slices.flatMap((slice) => [...sliceItems(slice, isExtended)]));
  }
  const service = snapshot.services.get(key);
  if (service === undefined) return [];
  return [makeItem(section, `${service.namespace}|${service.name}||`, encodeServiceInfo(service, isExtended))];
}

function isSelected(snapshot: Snapshot, key: string, { isExtended, proxyName }: GlobalRequest): boolean {
  const service = snapshot.services.get(key);
  // The slices of a Service that does not exist are sent to all, because its proxy name is unknown.
  return isExtended || service === undefined || service.proxyName === proxyName;
}

/**
 * Returns the items of a slice's endpoints. Unlike KPNG, this does not include each endpoint a second time at
 * `namespace||slice|hash`, an index that no reader needs.
 */
function sliceItems(slice: EndpointSlice, isExtended: boolean): Iterable<Item> {
  const items = new Map<string, Item>();
  for (const endpoint of slice.endpoints) {
    const base = `${slice.namespace}|${slice.serviceName}|${slice.name}|${formatHash(endpointInfoHash(endpoint))}`;
    // KPNG's hash ignores pods and hints, so endpoints that differ only in these must get different paths.
    let path = base;
    for (let count = 1; items.has(path); count++) path = `${base}-${endpoint.podName}${count === 1 ? "" : `-${count}`}`;
    items.set(path, makeItem(endpoints, path, encodeEndpointInfo(slice, endpoint, isExtended)));
  }
  return items.values();
}

function makeItem(section: number, path: string, bytes: Uint8Array): Item {
  return { section, path, frame: setFrame(order.sections[section] ?? 0, path, bytes) };
}
