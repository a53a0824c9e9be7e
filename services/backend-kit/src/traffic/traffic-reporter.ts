import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type ServiceTrafficSchema, type TrafficReport, TrafficReportSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { otherServices, type ServiceCounts } from "./service-counts.ts";

/** Number of Services in a report; the others are summed up. A report has at most 20 KB. */
const maxReported = 100;

/** Longest name with an entry of its own, in bytes: a request ends at 64 KiB, and with it the node's stream. */
const maxNameBytes = 510;

/**
 * Returns the counters of all Services that have had traffic, by `namespace/name` or {@link otherServices}. Undefined
 * while they are not known: counters that are older than the process would look like traffic of one interval.
 */
export type ReadServiceCounts = () => Iterable<readonly [service: string, counts: Readonly<ServiceCounts>]> | undefined;

/** Counters of a Service, and what was added in a second since the previous report. */
interface Measured {
  readonly service: string;
  readonly counts: Readonly<ServiceCounts>;
  readonly connectionsPerSecond: number;
  readonly bytesPerSecond: number;
}

/**
 * Makes the reports of a node's traffic for its watcher: the {@link maxReported} busiest Services since the previous
 * report, and the sum of all others. `AfterCommit` creates one with `--service-traffic`, and `WatchRequests` decides
 * when a report is sent. Separate from the counters, because the service proxies count in different ways.
 *
 * *Bound:* two numbers for each Service with counters.
 */
export class TrafficReporter {
  readonly #read: ReadServiceCounts;
  #before = new Map<string, { readonly connections: number; readonly bytes: number }>();
  #beforeMs: number | undefined;
  #wasIdle = false;

  constructor(read: ReadServiceCounts) {
    this.#read = read;
  }

  /**
   * Returns the next report; undefined if the watcher knows it already, because neither this nor the last interval had
   * traffic, or while counters are not known.
   * `isFirst` is true for the first report of a stream, whose watcher knows nothing yet. `nowMs` is monotonic.
   */
  next(isFirst: boolean, nowMs: number): TrafficReport | undefined {
    const all = this.#read();
    if (all === undefined) return undefined;
    const seconds = this.#beforeMs === undefined ? 0 : (nowMs - this.#beforeMs) / 1_000;
    const before = this.#before;
    this.#before = new Map();
    this.#beforeMs = nowMs;
    const measured: Measured[] = [];
    for (const [service, counts] of all) {
      const now = { connections: counts.connections, bytes: bytesOf(counts) };
      const old = before.get(service) ?? { connections: 0, bytes: 0 };
      // A Service may have got new counters, which begin at 0.
      const rate = (from: number, to: number): number => (seconds > 0 ? Math.max(0, to - from) / seconds : 0);
      const connectionsPerSecond = rate(old.connections, now.connections);
      measured.push({ service, counts, connectionsPerSecond, bytesPerSecond: rate(old.bytes, now.bytes) });
      this.#before.set(service, now);
    }
    const isIdle = measured.every(
      ({ connectionsPerSecond, bytesPerSecond }) => connectionsPerSecond + bytesPerSecond === 0,
    );
    const isKnown = isIdle && this.#wasIdle && !isFirst;
    this.#wasIdle = isIdle;
    return isKnown ? undefined : makeReport(measured);
  }
}

function makeReport(measured: readonly Measured[]): TrafficReport {
  const isNamed = ({ service }: Measured): boolean =>
    service !== otherServices && Buffer.byteLength(service) <= maxNameBytes;
  const named = measured.filter(isNamed).sort(byTraffic);
  const others = [...named.slice(maxReported), ...measured.filter((one) => !isNamed(one))];
  const rows = named.slice(0, maxReported).map((one) => ({ Service: one.service, ...encode([one]) }));
  return create(TrafficReportSchema, { Services: others.length === 0 ? rows : [...rows, encode(others)] });
}

function byTraffic(a: Measured, b: Measured): number {
  return (
    b.bytesPerSecond - a.bytesPerSecond ||
    b.connectionsPerSecond - a.connectionsPerSecond ||
    bytesOf(b.counts) - bytesOf(a.counts)
  );
}

function bytesOf({ bytesFromClients, bytesToClients }: Readonly<ServiceCounts>): number {
  return bytesFromClients + bytesToClients;
}

/** Encodes the sum of some Services. */
function encode(services: readonly Measured[]): MessageInitShape<typeof ServiceTrafficSchema> {
  const sum = (read: (of: Measured) => number): bigint =>
    BigInt(Math.round(services.reduce((total, one) => total + read(one), 0)));
  return {
    Connections: sum(({ counts }) => counts.connections),
    PacketsFromClients: sum(({ counts }) => counts.packetsFromClients),
    PacketsToClients: sum(({ counts }) => counts.packetsToClients),
    BytesFromClients: sum(({ counts }) => counts.bytesFromClients),
    BytesToClients: sum(({ counts }) => counts.bytesToClients),
    MilliConnectionsPerSecond: sum(({ connectionsPerSecond }) => connectionsPerSecond * 1_000),
    BytesPerSecond: sum(({ bytesPerSecond }) => bytesPerSecond),
  };
}
