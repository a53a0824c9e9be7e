import { setTimeout as sleep } from "node:timers/promises";
import { ackIntervalFor } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import type { Latencies, MadeChange } from "./batches.ts";
import type { Caller } from "./calls.ts";
import type { FleetOptions, OpenResult } from "./hollow-fleet.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { mebibytes } from "./proc.ts";
import { startCalled } from "./processes.ts";
import type { OwnServer, ServerUnderTest, TlsFilePaths } from "./servers.ts";
import type { SyntheticShape } from "./synthetic.ts";

export interface RowOptions {
  readonly shape: SyntheticShape;
  readonly streams: number;
  /** Whether the nodes request our own fields, as the kit does. False makes the requests of a Go client. */
  readonly isExtended: boolean;
  readonly tls: TlsFilePaths | undefined;
  readonly changes: number;
  /** Counts the first changes after the start, without a warm-up: real clusters restart their watchers. */
  readonly isCold: boolean;
  /** Whether a rolling update of 1 000 pods is measured, too. */
  readonly hasRolling: boolean;
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
  readonly heapPerStreamBytes: number;
  readonly single: ChangeFigures;
  readonly rssAfterBytes: number;
  /** The server's CPU time for the rolling update. */
  readonly rollingCpuMs: number | undefined;
  /** Number of sampled streams whose items were verified; undefined for servers whose store is not accessible. */
  readonly checkedStreams: number | undefined;
}

const fleet = "readers";

/**
 * Changes before the measurement: the first hundreds include compilation, which does not matter to a watcher that runs
 * for months.
 */
const warmUp = { changes: 400, ms: 15_000 };

/** Number of streams that keep the received items, which are verified at the end. */
const sampledStreams = 3;

/** Measures one row. The caller starts and stops the server. Rejects if a stream is lost, late, or holds wrong items. */
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
    const { streams, changes, isCold, hasRolling, limitMs: timeoutMs } = this.#options;
    await this.#load.call("open", { fleet: "first", options: this.#fleet({ streams: 1 }), timeoutMs });
    const alone = await this.#server.usage(true);
    const loadBefore = await this.#load.call("cpu", {});
    const options = this.#fleet({ streams, sampled: sampledStreams });
    const open = await this.#load.call("open", { fleet, options, timeoutMs }).catch(async (error: unknown) => {
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
    const single = await this.#single(changes, timeoutMs);
    const rssAfterBytes = (await this.#server.usage(false)).rssBytes;
    this.#say(`single changes: last node ${single.lastMs.median.toFixed(1)} ms`);
    const rollingCpuMs = hasRolling ? await this.#rolling() : undefined;
    return {
      opened,
      rssIdleBytes: idle.rssBytes,
      rssPerStreamBytes: (idle.rssBytes - alone.rssBytes) / streams,
      heapPerStreamBytes: (idle.heapBytes - alone.heapBytes) / streams,
      single,
      rssAfterBytes,
      rollingCpuMs,
      checkedStreams: await this.#check(),
    };
  }

  #fleet(fields: Pick<FleetOptions, "streams" | "sampled">): FleetOptions {
    const { tls, isExtended } = this.#options;
    return {
      address: this.#server.address,
      tls: tls === undefined ? undefined : { ca: tls.ca, ...tls.client },
      firstNode: 0,
      isExtended,
      ...fields,
    };
  }

  /** Waits until the server has read the next request of each stream, which is part of the cost. */
  #settle(): Promise<void> {
    return sleep(25 + this.#options.streams / 25);
  }

  /** Makes single changes; stops early after `limitMs`. */
  async #single(count: number, limitMs: number): Promise<ChangeFigures> {
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
    const { isExtended, limitMs: timeoutMs } = this.#options;
    if (isExtended && revision > 0) await this.#load.call("reachedRevision", { fleet, revision, timeoutMs });
    else await this.#load.call("reachedBatches", { fleet, count: batches, timeoutMs });
  }

  /** Resolves when all streams have received the changes up to a revision. */
  async #told(revision: number): Promise<void> {
    const { isExtended, limitMs: timeoutMs } = this.#options;
    if (isExtended) await this.#load.call("reachedRevision", { fleet, revision, timeoutMs });
    await this.#load.call("quiet", { fleet, quietMs: 300, timeoutMs });
  }

  /** Returns the server's CPU time for a rolling update, in milliseconds. */
  async #rolling(): Promise<number> {
    const { calls } = this.#own();
    const script = "rolling";
    await this.#told(await calls.call("prepare", { script }));
    const { changes, cpuMs } = await calls.call("play", { script, timeoutMs: this.#options.limitMs });
    await this.#told(changes.at(-1)?.revision ?? 0);
    const rollingCpuMs = (await this.#server.cpu()) - cpuMs;
    await this.#told(await calls.call("restore", { script }));
    return rollingCpuMs;
  }

  /** Compares the items of sampled streams with the views of the store. */
  async #check(): Promise<number | undefined> {
    const held = Object.entries(await this.#load.call("digests", { fleet }));
    if (!("calls" in this.#server)) return undefined;
    const { calls } = this.#own();
    for (const [nodeName, got] of held) {
      const expected = await calls.call("digest", { nodeName, isExtended: this.#options.isExtended });
      if (got.digest !== expected.digest) {
        throw new Error(
          `${nodeName} holds ${got.items} items (${got.digest}) and should hold ${expected.items} (${expected.digest})`,
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
