import { type Fit, fitTo, type Measured } from "./fit.ts";
import type { ConnectCosts, Costs } from "./process.ts";

/**
 * A row of `npm run bench -- fan-out`, measured together with all others: Node.js 24, 2 cores, one for the watcher and
 * its relays and one for the nodes. Times in milliseconds, memory in MiB of the watcher and of each relay.
 */
interface FanOutRow {
  readonly row: string;
  readonly lastMs: number;
  readonly cpuMs: number;
  readonly openMs: number;
  readonly openMiB: number;
  readonly memory: readonly number[];
}

const fitted: readonly FanOutRow[] = [
  { row: "100x5000x10", lastMs: 4.89, cpuMs: 6.48, openMs: 3_250, openMiB: 112, memory: [274] },
  { row: "1000x5000x10", lastMs: 69, cpuMs: 51, openMs: 4_270, openMiB: 1_077, memory: [285] },
  { row: "2500x5000x10", lastMs: 103, cpuMs: 148, openMs: 7_680, openMiB: 2_676, memory: [339] },
  { row: "5000x5000x10", lastMs: 248, cpuMs: 307, openMs: 19_830, openMiB: 5_375, memory: [432] },
  { row: "10000x5000x10", lastMs: 407, cpuMs: 612, openMs: 38_780, openMiB: 10_743, memory: [620] },
  { row: "1000x1000x10", lastMs: 39, cpuMs: 40, openMs: 1_810, openMiB: 216, memory: [169] },
  { row: "1000x20000x10", lastMs: 44, cpuMs: 49, openMs: 14_670, openMiB: 4_311, memory: [755] },
  { row: "20x50000x20", lastMs: 3.67, cpuMs: 5.64, openMs: 26_340, openMiB: 450, memory: [1_968] },
  { row: "200x50000x20", lastMs: 12, cpuMs: 97, openMs: 30_960, openMiB: 4_499, memory: [2_114] },
];
const throughRelays: FanOutRow = {
  ...{ row: "2000x5000x10x4", lastMs: 116, cpuMs: 158, openMs: 14_370, openMiB: 2_147 },
  memory: [135, 266, 268, 266, 270],
};
/** Rows to which nothing is fitted. */
const checked: readonly FanOutRow[] = [
  { row: "3000x10000x10", lastMs: 119, cpuMs: 153, openMs: 15_520, openMiB: 6_451, memory: [469] },
  { row: "3000x5000x10x2", lastMs: 150, cpuMs: 219, openMs: 11_800, openMiB: 3_222, memory: [138, 317, 316] },
];
/**
 * CPU time of 1 000 changes at once in such rows. The machine was half as fast then, as the row 100x5000x10 shows, where a
 * single change took 13 ms.
 */
const slowness = 13 / 6.48;
const bursts: readonly { readonly row: string; readonly ms: number }[] = [
  { row: "100x1000x10", ms: 503 / slowness },
  { row: "100x5000x10", ms: 523 / slowness },
  { row: "200x20000x10", ms: 611 / slowness },
  { row: "20x50000x20", ms: 1_457 / slowness },
];
/** `npm run bench -- newcomers 0x1000x5000x0x10` and so on: 1 000 nodes resume. */
const resumed: readonly { readonly services: number; readonly ms: number; readonly bytes: number }[] = [
  { services: 5_000, ms: 1_919, bytes: 21_945 },
  { services: 5_000, ms: 2_141, bytes: 214_213 },
  { services: 5_000, ms: 4_091, bytes: 1_109_527 },
  { services: 20_000, ms: 6_953, bytes: 810_190 },
];

const mebibyte = 2 ** 20;

/** *Shape:* `3000x5000x10x2`: streams × Services × endpoints of each × relays. */
function sizeOf({ row }: Pick<FanOutRow, "row">) {
  const [streams = 0, services = 0, endpoints = 0, relays = 0] = row.split("x").map(Number);
  return { streams, endpoints: services * endpoints, relays };
}

/** A fit, with the names of its terms. */
interface NamedFit extends Fit {
  readonly value: string;
  readonly terms: string;
}

function fitRows(value: string, terms: string, measuredOf: (row: FanOutRow) => Measured): NamedFit {
  return { value, terms, ...fitTo(fitted.map(measuredOf)) };
}

const last = fitRows("last node, ms", "change, stream", (row) => [row.lastMs, 1, sizeOf(row).streams]);
const cpu = fitRows("CPU of a change, ms", "change, stream", (row) => [row.cpuMs, 1, sizeOf(row).streams]);
const open = fitRows("all connect, ms", "endpoint, stream, MiB", (row) => {
  const { endpoints, streams } = sizeOf(row);
  return [row.openMs, endpoints, streams, row.openMiB];
});
const memory = fitRows("memory, MiB", "process, endpoint, stream", (row) => {
  const { endpoints, streams } = sizeOf(row);
  return [row.memory[0] ?? 0, 1, endpoints, streams];
});
const resume: NamedFit = {
  ...{ value: "1 000 nodes resume, ms", terms: "endpoint, stream, MiB" },
  ...fitTo(resumed.map(({ services, ms, bytes }): Measured => [ms, services * 10, 1_000, (1_000 * bytes) / mebibyte])),
};

const burst: NamedFit = {
  ...{ value: "1 000 changes at once, ms of CPU", terms: "change, endpoint" },
  ...fitTo(bursts.map(({ row, ms }): Measured => [ms, 1_000, 1_000 * sizeOf({ row }).endpoints])),
};

/** The fits of all costs. */
export const fits: readonly NamedFit[] = [last, cpu, burst, open, resume, memory];

const coefficient = ({ coefficients }: Fit, index: number): number => coefficients[index] ?? Number.NaN;
const connectCosts = (of: Fit): ConnectCosts => ({
  endpointMs: coefficient(of, 0),
  nodeMs: coefficient(of, 1),
  byteMs: coefficient(of, 2) / mebibyte,
});
const roundMs = { last: coefficient(last, 0), cpu: coefficient(cpu, 0) };
const streamMs = { last: coefficient(last, 1), cpu: coefficient(cpu, 1) };

/**
 * Predicts a value of a change in a row: the processes of a row share one core, so that their times add up. Relays add
 * a hop each, in which they decode and store the revision.
 */
function predictChange(what: "last" | "cpu", row: FanOutRow, hopMs: number): number {
  const { streams, relays } = sizeOf(row);
  const tier = (processes: number, count: number): number => processes * roundMs[what] + count * streamMs[what];
  return relays === 0 ? tier(1, streams) : tier(1, relays) + relays * hopMs + tier(relays, streams);
}

function hopOf(what: "last" | "cpu", measured: number): number {
  return (measured - predictChange(what, throughRelays, 0)) / sizeOf(throughRelays).relays;
}

const hop = { last: hopOf("last", throughRelays.lastMs), cpu: hopOf("cpu", throughRelays.cpuMs) };

/** The costs of a process on the machine of the rows. */
export const costs: Costs = {
  roundMs: roundMs.last,
  changeMs: coefficient(burst, 0),
  changeEndpointMs: coefficient(burst, 1),
  streamMs: streamMs.last,
  ackMs: Math.max(0, streamMs.cpu - streamMs.last),
  // As the rows show; further changes to the same class repeat neither the marker nor the digest.
  batchBytes: 215,
  changeBytes: 70,
  view: connectCosts(open),
  resume: connectCosts(resume),
  endpointBytes: 23,
  hopMs: hop.cpu,
  memory: {
    process: coefficient(memory, 0) * mebibyte,
    endpoint: coefficient(memory, 1) * mebibyte,
    stream: coefficient(memory, 2) * mebibyte,
  },
};

/** What the fits say of rows that they do not contain. */
export const predictions = checked.flatMap((row) => {
  const { endpoints, streams, relays } = sizeOf(row);
  const predicted = [
    { value: "last node, ms", measured: row.lastMs, predicted: predictChange("last", row, hop.last) },
    { value: "CPU of a change, ms", measured: row.cpuMs, predicted: predictChange("cpu", row, hop.cpu) },
  ];
  const openMs = endpoints * coefficient(open, 0) + streams * coefficient(open, 1) + row.openMiB * coefficient(open, 2);
  if (relays === 0) predicted.push({ value: "all connect, ms", measured: row.openMs, predicted: openMs });
  const serving = row.memory.at(-1) ?? 0;
  const each = streams / Math.max(1, relays);
  const mebibytes = coefficient(memory, 0) + endpoints * coefficient(memory, 1) + each * coefficient(memory, 2);
  predicted.push({ value: "memory, MiB", measured: serving, predicted: mebibytes });
  return predicted.map((one) => ({ row: row.row, ...one }));
});
