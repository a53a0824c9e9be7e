import { getOrMake } from "@kpng/model/collections.ts";
import { recordSpan, type SpanAttributes, type Tracing } from "@kpng/process/trace/tracing.ts";
import { type TracedRevision, triggerTimes, type Update } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import type { Delivery, DeliveryFollower, Recipient } from "../stream/session/subscribers.ts";

/**
 * Returns the function that a store calls for each revision (`StoreOptions.trace`). That function starts a trace, or
 * continues the upstream watcher's trace, and records the stages up to the store. It returns undefined if the trace is
 * not sampled.
 */
export function traceRevisions(tracing: Tracing): (update: Update) => TracedRevision | undefined {
  return (update) => {
    const { before, next, origin, beganAtMs } = update;
    // The first complete state is not an upstream change, so it does not continue the traces of the upstream watcher.
    const upstream = before.isSynced ? origin?.upstream : undefined;
    // The upstream time 0 means unknown.
    const startMs = Math.min(upstream?.storedAtMs || Number.POSITIVE_INFINITY, origin?.receivedAtMs ?? beganAtMs);
    const { revision, storedAtMs } = next;
    const [parent, ...links] = upstream?.traceparents ?? [];
    const span = tracing.begin("change", {
      startMs,
      parent,
      links,
      kind: parent === undefined ? undefined : "consumer",
    });
    if (span === undefined) return undefined;
    const { traceparent } = span;
    const received = upstream === undefined ? "source.decode" : "source.receive";
    recordSpan(tracing, received, { startMs, endMs: beganAtMs, parent: traceparent });
    recordSpan(tracing, "store.apply", { startMs: beganAtMs, endMs: storedAtMs, parent: traceparent });
    span.end({ endMs: storedAtMs, attributes: describe(update) });
    // For a trace of the upstream watcher, that watcher has chosen how many of our nodes record their part.
    const nodes = parent === undefined ? tracedNodes : (upstream?.tracedNodes ?? 0);
    return { revision, storedAtMs, traceparent, nodes };
  };
}

/** Number of nodes that record their part of a trace: enough to compare nodes, and few enough for any collector. */
const tracedNodes = 50;

/** Maximum number of objects and of trigger times in the attributes of a span. */
const maxNamed = 10;

/**
 * Returns the attributes of a change. They name only the objects that differ, although a list or a file contains all
 * objects.
 */
function describe({ origin, before, next, instance }: Update): SpanAttributes {
  const slicesOf = next.slicesByService.changedKeys(before.slicesByService);
  // A Service often changes together with its slices, and many slices have the time of one trigger.
  const services = firstOf(new Set([...firstOf(slicesOf), ...firstOf(next.services.changedKeys(before.services))]));
  const times = firstOf(new Set(triggerTimes(before, next))).map((ms) => new Date(ms).toISOString());
  return {
    "kpng.source": origin?.source ?? "",
    "kpng.instance": instance,
    "kpng.revision": next.revision,
    "kpng.services": services,
    "kpng.nodes": firstOf(next.nodes.changedKeys(before.nodes)),
    ...(times.length === 0 ? {} : { "kpng.last_change_trigger_times": times }),
  };
}

function firstOf<T>(values: Iterable<T>): readonly T[] {
  return [...Iterator.from(values).take(maxNamed)];
}

/**
 * Records how long it took to send a traced revision to all subscribers, as one span.
 *
 * *Bound:* the traced revisions of the last half second. *Cost:* one comparison for each batch without a traced
 * revision.
 */
export class TraceSends implements DeliveryFollower {
  readonly #store: Store;
  readonly #tracing: Tracing;
  readonly #later: (end: () => void) => void;
  readonly #sending = new Map<number, Sends>();

  /** `later` calls a function after half a second. */
  constructor(store: Store, tracing: Tracing, later = (end: () => void) => void setTimeout(end, windowMs).unref()) {
    this.#later = later;
    this.#store = store;
    this.#tracing = tracing;
  }

  sent(_recipient: Recipient, { after, revision, byteCount }: Delivery, sentAtMs: number): void {
    const traced = this.#store.snapshot.traces.findLast((one) => one.revision <= revision);
    // A whole view (`after` 0) is sent because a stream begins, not because the cluster changed.
    if (traced === undefined || after === 0 || traced.revision <= after) return;
    const sends = getOrMake(this.#sending, traced.revision, () => {
      this.#later(() => this.#end(traced));
      return { lastSentAtMs: sentAtMs, subscriberCount: 0, byteCount: 0 };
    });
    sends.lastSentAtMs = sentAtMs;
    sends.subscriberCount += 1;
    sends.byteCount += byteCount;
  }

  #end({ revision, traceparent: parent, storedAtMs: startMs }: TracedRevision): void {
    const sends = this.#sending.get(revision);
    this.#sending.delete(revision);
    if (sends === undefined) return;
    const { lastSentAtMs: endMs, subscriberCount, byteCount } = sends;
    const attributes = { "kpng.subscribers": subscriberCount, "kpng.bytes": byteCount };
    recordSpan(this.#tracing, "stream.send", { kind: "producer", parent, startMs, endMs, attributes });
  }
}

/** Time during which the sends of a revision share a span, in milliseconds. Later sends get their own span. */
const windowMs = 500;

interface Sends {
  lastSentAtMs: number;
  subscriberCount: number;
  byteCount: number;
}
