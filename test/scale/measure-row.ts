import { setTimeout as sleep } from "node:timers/promises";
import { ackIntervalFor } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import type { Latencies, MadeChange } from "./batch-log.ts";
import type { Caller } from "./calls.ts";
import type { FleetOptions, OpenResult } from "./hollow-fleet.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { mebibytes } from "./proc.ts";
import { startCalled } from "./processes.ts";
import type { ScriptName } from "./scripts.ts";
import type { OwnServer, ServerUnderTest, TlsFilePaths } from "./server-under-test.ts";
import type { SyntheticShape } from "./synthetic.ts";

export interface RowOptions {
  readonly shape: SyntheticShape;
  readonly streams: number;
  readonly streamsPerConnection: number;
  readonly isExtended: boolean;
  readonly tls: TlsFilePaths | undefined;
  /** Number of additional readers that stall: half before the first byte, half after the first batch. */
  readonly stalled: number;
  readonly changes: number;
  /** Counts the first changes after the start, without a warm-up: real clusters restart their watchers. */
  readonly isCold?: boolean | undefined;
  readonly scripts: readonly ScriptName[];
  /** Durations in milliseconds over which the connections of a mass reconnect are spread; one reconnect for each. */
  readonly storms: readonly number[];
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

export interface ScriptFigures {
  readonly name: ScriptName;
  readonly changes: number;
  readonly seconds: number;
  /**
   * Ages of batches, from the oldest change in a batch until it was received. Empty if the server sends no revisions.
   */
  readonly latencies: Latencies;
  /** Time from the last change until the last node had it. */
  readonly lastMs: number;
  readonly serverCpuMs: number;
  readonly loadCpuMs: number;
  readonly batchesPerStream: number;
  readonly bytesPerStream: number;
  readonly delay: { readonly p99: number; readonly max: number };
  readonly behindMs: number;
}

export interface StormFigures extends OpenResult {
  /** Duration over which the connections were spread. */
  readonly jitterMs: number;
  readonly serverCpuMs: number;
  readonly peakRssBytes: number;
}

export interface RowResult {
  /** RSS with one stream, before the others connect. */
  readonly rssAloneBytes: number;
  readonly opened: OpenResult & {
    readonly serverCpuMs: number;
    readonly loadCpuMs: number;
    readonly peakRssBytes: number;
  };
  /** RSS of the server when all streams are idle, after a garbage collection. */
  readonly rssIdleBytes: number;
  readonly rssPerStreamBytes: number;
  readonly heapPerStreamBytes: number;
  readonly single: ChangeFigures;
  readonly rssAfterBytes: number;
  readonly scripts: readonly ScriptFigures[];
  readonly stalled?: { readonly single: ChangeFigures; readonly rssGrowthBytes: number } | undefined;
  readonly storms: readonly StormFigures[];
  /** Number of sampled streams whose items were verified; undefined for servers whose store is not accessible. */
  readonly checkedStreams?: number | undefined;
  /** Reason why the row ended early: a time limit, a lost stream, or a wrong item. */
  readonly failure?: string | undefined;
}

const fleet = "readers";

/**
 * Changes before the measurement: the first hundreds include compilation, which does not matter to a watcher that runs
 * for months.
 */
const warmUp = { changes: 400, ms: 15_000 };

/** Number of streams that keep the received items, which are verified at the end. */
const sampledStreams = 3;

/** Measures one row. The caller starts and stops the server. Rejects if not even single changes could be measured. */
export async function measureRow(
  server: ServerUnderTest,
  options: RowOptions,
  say: (line: string) => void,
): Promise<RowResult> {
  const load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  try {
    return await new Row(server, load, options, say).measure();
  } finally {
    await load.stop();
  }
}

class Row {
  readonly #server: ServerUnderTest;
  readonly #load: Caller<HollowNodesHandlers>;
  readonly #options: RowOptions;
  readonly #say: (line: string) => void;

  constructor(
    server: ServerUnderTest,
    load: Caller<HollowNodesHandlers>,
    options: RowOptions,
    say: (line: string) => void,
  ) {
    this.#server = server;
    this.#load = load;
    this.#options = options;
    this.#say = say;
  }

  async measure(): Promise<RowResult> {
    const { streams, changes, isCold = false, limitMs, scripts, storms, stalled } = this.#options;
    await this.#load.call("open", {
      fleet: "first",
      options: this.#fleet({ streams: 1, firstNode: 0 }),
      timeoutMs: limitMs,
    });
    const alone = await this.#server.usage(true);
    const loadBefore = await this.#load.call("cpu", {});
    const options = this.#fleet({ streams, firstNode: 0, sampled: sampledStreams });
    const open = await this.#load.call("open", { fleet, options, timeoutMs: limitMs }).catch(async (error: unknown) => {
      const used = await this.#server.usage(false);
      const cpu = `${((used.cpuMs - alone.cpuMs) / 1000).toFixed(1)} s of CPU, RSS ${mebibytes(used.rssBytes)}`;
      throw new Error(`not all synced, and ${cpu}`, { cause: error });
    });
    const loadCpuMs = (await this.#load.call("cpu", {})) - loadBefore;
    const after = await this.#server.usage(false);
    const opened = { ...open, serverCpuMs: after.cpuMs - alone.cpuMs, loadCpuMs, peakRssBytes: after.peakRssBytes };
    this.#say(`all synced after ${(open.elapsedMs / 1000).toFixed(1)} s`);
    await this.#load.call("drop", { fleet: "first" });
    await this.#settle();
    const idle = await this.#server.usage(true);
    if (!isCold) await this.#single(warmUp.changes, warmUp.ms);
    const single = await this.#single(changes);
    const rssAfterBytes = (await this.#server.usage(false)).rssBytes;
    this.#say(`single changes: last node ${single.lastMs.median.toFixed(1)} ms`);
    const scriptFigures: ScriptFigures[] = [];
    let stalledFigures: RowResult["stalled"];
    const stormFigures: StormFigures[] = [];
    let checkedStreams: number | undefined;
    let failure: string | undefined;
    try {
      for (const name of scripts) {
        scriptFigures.push(await this.#script(name));
        this.#say(`${name} done`);
      }
      if (stalled > 0) stalledFigures = await this.#stalled();
      for (const jitterMs of storms) {
        stormFigures.push(await this.#storm(jitterMs));
        this.#say(`storm over ${jitterMs} ms done`);
      }
      checkedStreams = await this.#check();
    } catch (error) {
      // The results so far remain valid.
      failure = error instanceof Error ? error.message : String(error);
    }
    return {
      rssAloneBytes: alone.rssBytes,
      opened,
      rssIdleBytes: idle.rssBytes,
      rssPerStreamBytes: (idle.rssBytes - alone.rssBytes) / streams,
      heapPerStreamBytes: (idle.heapBytes - alone.heapBytes) / streams,
      single,
      rssAfterBytes,
      scripts: scriptFigures,
      stalled: stalledFigures,
      storms: stormFigures,
      checkedStreams,
      failure,
    };
  }

  #fleet(fields: Partial<FleetOptions> & Pick<FleetOptions, "streams" | "firstNode">): FleetOptions {
    const { tls, isExtended, streamsPerConnection } = this.#options;
    return {
      address: this.#server.address,
      tls: tls === undefined ? undefined : { ca: tls.ca, ...tls.client },
      isExtended,
      streamsPerConnection,
      ...fields,
    };
  }

  /** Waits until the server has read the next request of each stream, which is part of the cost. */
  #settle(): Promise<void> {
    return sleep(25 + this.#options.streams / 25);
  }

  /** Makes single changes; stops early after `limitMs`. */
  async #single(count: number, limitMs = this.#options.limitMs): Promise<ChangeFigures> {
    const { streams } = this.#options;
    const mark = await this.#load.call("mark", { fleet });
    const loadBefore = await this.#load.call("cpu", {});
    const changes: MadeChange[] = [];
    let firstCpuMs: number | undefined;
    const stopAtMs = Date.now() + limitMs;
    // An even number, so that each endpoint is ready again at the end.
    while (changes.length < count && (Date.now() < stopAtMs || changes.length % 2 === 1)) {
      const { cpuMs, ...change } = await this.#server.change();
      firstCpuMs ??= cpuMs;
      changes.push(change);
      await this.#reached(change.revision, mark.batches + changes.length);
      await this.#settle();
    }
    // The last acknowledgements are part of the cost.
    await sleep(2 * ackIntervalFor(streams));
    const serverCpuMs = (await this.#server.cpu()) - (firstCpuMs ?? 0);
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

  async #reached(revision: number, batches: number): Promise<void> {
    const { isExtended, limitMs: timeoutMs, shape } = this.#options;
    // With hints, a change concerns an unknown subset of the nodes: wait until no batch arrives for a while.
    if ((shape.hints ?? "none") !== "none") await this.#load.call("quiet", { fleet, quietMs: 100, timeoutMs });
    else if (isExtended && revision > 0) await this.#load.call("reachedRevision", { fleet, revision, timeoutMs });
    else await this.#load.call("reachedBatches", { fleet, count: batches, timeoutMs });
  }

  /** Resolves when all streams have received the changes up to a revision. */
  async #told(revision: number): Promise<void> {
    const { isExtended, limitMs: timeoutMs } = this.#options;
    if (isExtended) await this.#load.call("reachedRevision", { fleet, revision, timeoutMs });
    await this.#load.call("quiet", { fleet, quietMs: 300, timeoutMs });
  }

  async #script(name: ScriptName): Promise<ScriptFigures> {
    const { calls } = this.#own();
    const { streams, limitMs: timeoutMs } = this.#options;
    await this.#told(await calls.call("prepare", { script: name }));
    const mark = await this.#load.call("mark", { fleet });
    const loadBefore = await this.#load.call("cpu", {});
    await calls.call("watchDelay", {});
    const { changes, sinceRevision, cpuMs, behindMs } = await calls.call("play", { script: name, timeoutMs });
    await this.#told(changes.at(-1)?.revision ?? 0);
    const serverCpuMs = (await this.#server.cpu()) - cpuMs;
    const delay = await calls.call("delay", {});
    const loadCpuMs = (await this.#load.call("cpu", {})) - loadBefore;
    const collected = await this.#load.call("collect", { fleet, changes, sinceRevision });
    await this.#told(await calls.call("restore", { script: name }));
    const [first, last] = [changes[0]?.atMs ?? 0, changes.at(-1)?.atMs ?? 0];
    return {
      name,
      changes: changes.length,
      seconds: (last - first) / 1000,
      latencies: collected.latencies,
      lastMs: collected.lastAtMs - last,
      serverCpuMs,
      loadCpuMs,
      batchesPerStream: collected.batches / streams,
      bytesPerStream: (collected.receivedBytes - mark.receivedBytes) / streams,
      delay,
      behindMs,
    };
  }

  /** Measures the same changes beside stalled readers, and the memory of the server that these readers cost. */
  async #stalled() {
    const { stalled, streams, changes, limitMs: timeoutMs, scripts } = this.#options;
    const before = await this.#server.usage(true);
    const half = Math.ceil(stalled / 2);
    const open = (name: string, count: number, firstNode: number, stallAfterBatches: number) =>
      this.#load.call("open", {
        fleet: name,
        options: this.#fleet({ streams: count, firstNode, stallAfterBatches }),
        timeoutMs,
      });
    await open("deaf", half, streams, 0);
    if (stalled > half) await open("stuck", stalled - half, streams + half, 1);
    await sleep(1_000);
    await this.#settle();
    const single = await this.#single(changes);
    if (scripts.length > 0) await this.#script("churn1000");
    const after = await this.#server.usage(true);
    await this.#load.call("drop", { fleet: "deaf" });
    if (stalled > half) await this.#load.call("drop", { fleet: "stuck" });
    return { single, rssGrowthBytes: after.rssBytes - before.rssBytes };
  }

  async #storm(jitterMs: number) {
    const before = await this.#server.usage(false);
    const opened = await this.#load.call("storm", { fleet, jitterMs, timeoutMs: this.#options.limitMs + jitterMs });
    await this.#settle();
    const after = await this.#server.usage(false);
    return { ...opened, jitterMs, serverCpuMs: after.cpuMs - before.cpuMs, peakRssBytes: after.peakRssBytes };
  }

  /** Compares the items of sampled streams with the views of the store. */
  async #check(): Promise<number | undefined> {
    const held = Object.entries(await this.#load.call("digests", { fleet }));
    if (!("calls" in this.#server)) return undefined;
    const { calls } = this.#own();
    for (const [nodeName, got] of held) {
      const wanted = await calls.call("digest", { nodeName, isExtended: this.#options.isExtended });
      if (got.digest !== wanted.digest) {
        throw new Error(
          `${nodeName} holds ${got.items} items (${got.digest}) and should hold ${wanted.items} (${wanted.digest})`,
        );
      }
    }
    return held.length;
  }

  #own(): OwnServer {
    if (!("calls" in this.#server)) throw new Error("only our own server runs scripts");
    return this.#server as OwnServer;
  }
}
