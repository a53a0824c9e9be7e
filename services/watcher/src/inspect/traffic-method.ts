import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { ListTrafficRequest, ListTrafficResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { TrafficSchema } from "@kpng/model/gen/kpng/inspect/v1/traffic_pb.ts";
import { trafficFields } from "../stream/session/reported-traffic.ts";
import { syncedSnapshot } from "../stream/session/requests.ts";
import type { Subscriber } from "../stream/session/subscriber.ts";
import type { InspectContext } from "./inspect-context.ts";
import { matchesService } from "./request-filters.ts";
import { visitInTurns } from "./visit-in-turns.ts";

/** Rows of a response: default and maximum. */
const [defaultLimit, maxLimit] = [100, 1_000];

/** Traffic of a Service, added up over nodes. */
interface Sum {
  /** *Shape:* `namespace/name`; "" for Services without an entry of their own. */
  readonly service: string;
  /** Node of the row, if the rows are by node; otherwise "". */
  readonly node: string;
  readonly nodes: Set<string>;
  /** In the order of {@link trafficFields}. */
  readonly values: number[];
}

/**
 * The method ListTraffic of InspectService: adds up what the nodes with open streams reported last: for each node and
 * proxy, on its newest stream. `inspection` registers it; `kpng top services` and the status page call it. Separate
 * from `listMethods`, whose rows come from the snapshot and have pages.
 *
 * Errors: INVALID_ARGUMENT for a name without a namespace, or a limit above 1 000.
 *
 * *Cost:* at most 101 additions for each node, in slices of the thread.
 */
export async function trafficMethod(
  { store, subscribers }: InspectContext,
  { namespace, name, node, limit }: ListTrafficRequest,
  signal: AbortSignal,
): Promise<MessageInitShape<typeof ListTrafficResponseSchema>> {
  if (limit > maxLimit) throw new ConnectError(`limit ${limit} exceeds ${maxLimit}`, Code.InvalidArgument);
  // Otherwise the rows could be as many as all nodes have Services.
  if (name !== "" && namespace === "") throw new ConnectError("name requires namespace", Code.InvalidArgument);
  const { revision, services } = syncedSnapshot(store);
  const isFiltered = namespace !== "";
  const sums = new Map<string, Sum>();
  const reporting = new Set<string>();
  const others = emptySum("", "");
  // The watcher may not know yet that an earlier stream of the same proxy has broken.
  const newest = new Map<string, Subscriber>();
  const find = (one: Subscriber): boolean => {
    const { traffic, isNode, nodeName, proxyName, program } = one;
    if (traffic === undefined || !isNode || nodeName === "" || (node !== "" && node !== nodeName)) return true;
    newest.set(JSON.stringify([nodeName, proxyName, program]), one);
    return true;
  };
  await visitInTurns(subscribers.open, find, signal);
  const add = ({ traffic, nodeName }: Subscriber): boolean => {
    if (traffic === undefined) return true;
    reporting.add(nodeName);
    for (const [index, service] of traffic.services.entries()) {
      const values = traffic.values.subarray(index * trafficFields.length, (index + 1) * trafficFields.length);
      // A Service may have been deleted since the report.
      if (service === "" || services.get(service) === undefined) addTo(others, [nodeName], values);
      else if (matchesService(service, { namespace, name })) {
        const rowNode = name === "" ? "" : nodeName;
        const key = `${service} ${rowNode}`;
        const sum = sums.get(key) ?? emptySum(service, rowNode);
        sums.set(key, sum);
        addTo(sum, [nodeName], values);
      }
    }
    return true;
  };
  await visitInTurns(newest.values(), add, signal);
  const rows = [...sums.values()].sort(byTraffic);
  const shown = limit === 0 ? defaultLimit : limit;
  for (const { nodes, values } of rows.slice(shown)) addTo(others, nodes, values);
  return {
    revision: BigInt(revision),
    nodeCount: reporting.size,
    traffic: rows.slice(0, shown).map(trafficRow),
    ...(others.nodes.size === 0 || isFiltered ? {} : { others: trafficRow(others) }),
  };
}

function emptySum(service: string, node: string): Sum {
  return { service, node, nodes: new Set(), values: trafficFields.map(() => 0) };
}

function addTo(sum: Sum, nodes: Iterable<string>, values: ArrayLike<number>): void {
  for (const one of nodes) sum.nodes.add(one);
  for (const index of sum.values.keys()) sum.values[index] = (sum.values[index] ?? 0) + (values[index] ?? 0);
}

function fieldOf({ values }: Sum, field: (typeof trafficFields)[number]): number {
  return values[trafficFields.indexOf(field)] ?? 0;
}

function bytesOf(sum: Sum): number {
  return fieldOf(sum, "BytesFromClients") + fieldOf(sum, "BytesToClients");
}

function byTraffic(a: Sum, b: Sum): number {
  return (
    fieldOf(b, "BytesPerSecond") - fieldOf(a, "BytesPerSecond") ||
    bytesOf(b) - bytesOf(a) ||
    fieldOf(b, "Connections") - fieldOf(a, "Connections")
  );
}

function trafficRow(sum: Sum): MessageInitShape<typeof TrafficSchema> {
  const [namespace = "", name = ""] = sum.service.split("/");
  // The sum of many nodes may exceed what a uint64 can hold.
  const counter = (field: (typeof trafficFields)[number]): bigint => BigInt(Math.min(fieldOf(sum, field), 2 ** 63));
  return {
    namespace,
    name,
    node: sum.node,
    nodeCount: sum.nodes.size,
    connections: counter("Connections"),
    packetsFromClients: counter("PacketsFromClients"),
    packetsToClients: counter("PacketsToClients"),
    bytesFromClients: counter("BytesFromClients"),
    bytesToClients: counter("BytesToClients"),
    connectionsPerSecond: fieldOf(sum, "MilliConnectionsPerSecond") / 1_000,
    bytesPerSecond: fieldOf(sum, "BytesPerSecond"),
  };
}
