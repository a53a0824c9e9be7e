import { writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { growOldGenerationByHalf } from "@kpng/process/run/memory.ts";
import { endpointChange, makeCluster, type SyntheticShape } from "@kpng/source/simulate/synthetic.ts";
import type { ObjectChange } from "@kpng/source/source.ts";
import { viewTargetIn } from "@kpng/watcher/items/view-target.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { viewBuckets } from "@kpng/watcher/stream/delta/resume-view.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import type { MadeChange } from "./batch-log.ts";
import { answerCalls } from "./calls.ts";
import { monotonicMs, usageOf } from "./proc.ts";

/**
 * Process with the server under test: a store with a synthetic cluster, served by the watcher's own serveTask.
 */
const store = new Store();
let shape: SyntheticShape = { services: 0, endpoints: 0, nodes: 0 };
let changesMade = 0;
const delays = monitorEventLoopDelay({ resolution: 5 });
/** The changes in progress; see `churn`. */
let churn: Churn | undefined;

interface Churn {
  readonly timer: NodeJS.Timeout;
  readonly changes: MadeChange[];
  readonly sinceRevision: number;
}

interface WriteDigests {
  readonly path: string;
  readonly firstNode: number;
  readonly nodes: number;
}

function apply(changes: readonly ObjectChange[]): MadeChange {
  const atMs = monotonicMs();
  store.apply(changes);
  return { revision: store.snapshot.revision, atMs };
}

const handlers = {
  async start(options: { readonly shape: SyntheticShape }) {
    // `kpng to-api` does the same.
    growOldGenerationByHalf();
    shape = options.shape;
    store.replace(makeCluster(shape));
    const server = await serveStore(store);
    delays.enable();
    return { address: server.address };
  },

  /** Changes one endpoint. */
  change(_: Record<never, never>): MadeChange {
    const change = endpointChange(changesMade, shape);
    changesMade += 1;
    return apply([change]);
  },

  /** Changes one endpoint after the other, until `endChurn`. A busy server catches up. */
  churn({ changesPerSecond }: { readonly changesPerSecond: number }): void {
    const startedAtMs = monotonicMs();
    const changes: MadeChange[] = [];
    const timer = setInterval(() => {
      const due = Math.floor(((monotonicMs() - startedAtMs) / 1_000) * changesPerSecond);
      while (changes.length < due) {
        changes.push(apply([endpointChange(changesMade, shape)]));
        changesMade += 1;
      }
    }, 5);
    churn = { timer, changes, sinceRevision: store.snapshot.revision };
  },

  endChurn(_: Record<never, never>) {
    const { timer, changes = [], sinceRevision = 0 } = churn ?? {};
    clearInterval(timer);
    return { changes, sinceRevision };
  },

  /** Makes one endpoint unready in each of so many Services, for good. */
  age({ changes }: { readonly changes: number }): void {
    apply(Array.from({ length: changes }, (_, index) => endpointChange(changesMade + 2 * index, shape)));
    changesMade += 2 * changes;
  },

  /** Writes the digests of the views of some nodes to a file; see FleetOptions.heldDigests. */
  writeDigests({ path, firstNode, nodes }: WriteDigests): void {
    const request = { proxyName: "", isExtended: true, wantsNode: false };
    const digests = Array.from({ length: nodes }, (_, index) =>
      viewBuckets(store.snapshot, viewTargetIn(store.snapshot, { ...request, nodeName: `node-${firstNode + index}` })),
    );
    writeFileSync(path, Buffer.concat(digests.map((one) => one.toBytes())));
  },

  /** Usage so far, and the longest turn of the event loop since the last call. */
  usage(_: Record<never, never>) {
    const longestTurnMs = delays.max / 1e6;
    delays.reset();
    const { user, system } = process.cpuUsage();
    return { cpuMs: (user + system) / 1000, rssBytes: usageOf(process.pid).rssBytes, longestTurnMs };
  },
};

export type FanOutServerHandlers = typeof handlers;

answerCalls(handlers);
