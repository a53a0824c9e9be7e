import { recordSpan, type SpanAttributes, type Tracing } from "@kpng/process/trace/tracing.ts";
import { type TracedRevision, triggerTimes, type Update } from "../store/snapshot.ts";

/**
 * Returns the function that a store calls for each revision (`StoreOptions.trace`). It starts a trace, or continues that
 * of the upstream watcher, and records the stages up to the store. It returns undefined if the trace is not sampled.
 */
export function traceRevisions(tracing: Tracing): (update: Update) => TracedRevision | undefined {
  return (update) => {
    const { before, next, origin, beganAtMs } = update;
    // The first complete state is not a change upstream, so it does not continue the traces of the upstream watcher.
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
    const nodes = parent === undefined ? tracedNodes : (upstream?.tracedNodes ?? 0);
    return { revision, storedAtMs, traceparent, nodes };
  };
}

/** Number of nodes that record their part of a trace: enough to compare nodes, few enough for any collector. */
const tracedNodes = 50;

/** Maximum number of objects and of trigger times in the attributes of a span. */
const maxNamed = 10;

/** Returns the attributes of a change. They name only objects that differ, although a list or file brings all. */
function describe({ origin, before, next, instance }: Update): SpanAttributes {
  const slicesOf = next.slicesByService.changedKeys(before.slicesByService);
  const services = firstOf([...firstOf(slicesOf), ...firstOf(next.services.changedKeys(before.services))]);
  const times = firstOf(triggerTimes(before, next)).map((ms) => new Date(ms).toISOString());
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
  const first = new Set<T>();
  for (const value of values) {
    if (first.size === maxNamed) break;
    first.add(value);
  }
  return [...first];
}
