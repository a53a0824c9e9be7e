import { setTimeout as sleep } from "node:timers/promises";
import { ackIntervalFor } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import type { Latencies, MadeChange } from "./batches.ts";
import type { Caller } from "./calls.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import type { FleetOptions, OpenResult } from "./hollow-fleet.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { mebibytes } from "./proc.ts";
import { startCalled, startServer } from "./processes.ts";
import type { SyntheticShape } from "./synthetic.ts";

export interface RowOptions {
  readonly shape: SyntheticShape;
  readonly streams: number;
  readonly changes: number;
  /** Time limit for all streams to get their first batch, and for one change to reach all streams, in milliseconds. */
  readonly limitMs: number;
}

/** Cost of single changes, made one at a time. */
export interface ChangeFigures {
  readonly latencies: Latencies;
  /** Time until the last node had a change; median and maximum over all changes. */
  readonly lastMs: { readonly median: number; readonly max: number };
  readonly serverCpuMs: number;
  readonly loadCpuMs: number;
  /** Bytes sent to one stream, including HTTP/2 frames. */
  readonly bytes: number;
}

export interface RowResult {
  readonly opened: OpenResult & {
    readonly serverCpuMs: number;
    readonly loadCpuMs: number;
    readonly peakRssBytes: number;
  };
  /** RSS of the server when all streams are idle, after a garbage collection. */
  readonly rssIdleBytes: number;
  readonly rssPerStreamBytes: number;
  readonly single: ChangeFigures;
  readonly rssAfterBytes: number;
}

const fleet = "readers";

/**
 * Changes before the measurement: the first hundreds include compilation, which does not matter to a watcher that runs
 * for months.
 */
const warmUp = { changes: 400, ms: 15_000 };

/** Measures one row. Rejects if a stream is lost or late. */
export async function measureRow(options: RowOptions, say: (line: string) => void): Promise<RowResult> {
  const server = startServer<FanOutServerHandlers>("fan-out-server");
  const load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  try {
    const { address } = await server.call("start", { shape: options.shape });
    return await new Row(server, address, load, options, say).measure();
  } finally {
    await load.stop();
    await server.stop();
  }
}

class Row {
  readonly #server: Caller<FanOutServerHandlers>;
  readonly #address: string;
  readonly #load: Caller<HollowNodesHandlers>;
  readonly #options: RowOptions;
  readonly #say: (line: string) => void;

  constructor(
    server: Caller<FanOutServerHandlers>,
    address: string,
    load: Caller<HollowNodesHandlers>,
    options: RowOptions,
    say: (line: string) => void,
  ) {
    this.#server = server;
    this.#address = address;
    this.#load = load;
    this.#options = options;
    this.#say = say;
  }

  async measure(): Promise<RowResult> {
    const { streams, changes, limitMs: timeoutMs } = this.#options;
    await this.#load.call("open", { fleet: "first", options: this.#fleet(1), timeoutMs });
    const alone = await this.#server.call("usage", { settle: true });
    const loadBefore = await this.#load.call("cpu", {});
    const options = this.#fleet(streams);
    const open = await this.#load.call("open", { fleet, options, timeoutMs }).catch(async (error: unknown) => {
      const used = await this.#server.call("usage", { settle: false });
      const cpu = `${((used.cpuMs - alone.cpuMs) / 1000).toFixed(1)} s of CPU, RSS ${mebibytes(used.rssBytes)}`;
      throw new Error(`not all synced, and ${cpu}`, { cause: error });
    });
    const loadCpuMs = (await this.#load.call("cpu", {})) - loadBefore;
    const after = await this.#server.call("usage", { settle: false });
    const opened = { ...open, serverCpuMs: after.cpuMs - alone.cpuMs, loadCpuMs, peakRssBytes: after.peakRssBytes };
    this.#say(`all synced after ${(open.elapsedMs / 1000).toFixed(1)} s`);
    await this.#load.call("drop", { fleet: "first" });
    await this.#settle();
    const idle = await this.#server.call("usage", { settle: true });
    await this.#single(warmUp.changes, warmUp.ms);
    const single = await this.#single(changes, timeoutMs);
    const rssAfterBytes = (await this.#server.call("usage", { settle: false })).rssBytes;
    this.#say(`single changes: last node ${single.lastMs.median.toFixed(1)} ms`);
    return {
      opened,
      rssIdleBytes: idle.rssBytes,
      rssPerStreamBytes: (idle.rssBytes - alone.rssBytes) / streams,
      single,
      rssAfterBytes,
    };
  }

  #fleet(streams: number): FleetOptions {
    return { address: this.#address, firstNode: 0, isExtended: true, streams };
  }

  /** Waits until the server has read the next request of each stream, which is part of the cost. */
  #settle(): Promise<void> {
    return sleep(25 + this.#options.streams / 25);
  }

  /** Makes single changes; stops early after `limitMs`. */
  async #single(count: number, limitMs: number): Promise<ChangeFigures> {
    const { streams, limitMs: timeoutMs } = this.#options;
    const mark = await this.#load.call("mark", { fleet });
    const loadBefore = await this.#load.call("cpu", {});
    const changes: MadeChange[] = [];
    let firstCpuMs: number | undefined;
    const stopAtMs = Date.now() + limitMs;
    // An even number, so that each endpoint is ready again at the end.
    while (changes.length < count && (Date.now() < stopAtMs || changes.length % 2 === 1)) {
      const { cpuMs, ...change } = await this.#server.call("change", {});
      firstCpuMs ??= cpuMs;
      changes.push(change);
      await this.#load.call("reachedRevision", { fleet, revision: change.revision, timeoutMs });
      await this.#settle();
    }
    // The last acknowledgements are part of the cost.
    await sleep(2 * ackIntervalFor(streams));
    const serverCpuMs = (await this.#server.call("cpu", {})) - (firstCpuMs ?? 0);
    const loadCpuMs = (await this.#load.call("cpu", {})) - loadBefore;
    const sinceRevision = (changes[0]?.revision ?? 1) - 1;
    const { latencies, receivedBytes } = await this.#load.call("collect", { fleet, changes, sinceRevision });
    const last = latencies.lastByChange.toSorted((a, b) => a - b);
    return {
      latencies,
      lastMs: { median: last[Math.floor(last.length / 2)] ?? Number.NaN, max: last.at(-1) ?? Number.NaN },
      serverCpuMs: serverCpuMs / changes.length,
      loadCpuMs: loadCpuMs / changes.length,
      bytes: (receivedBytes - mark.receivedBytes) / changes.length / streams,
    };
  }
}
