import { recordSpan, type SpanAttributes, type Tracing } from "@kpng/process/trace/tracing.ts";
import type { TracedRevision } from "../store/snapshot.ts";
import { triggerTimes } from "../store/trigger-times.ts";
import type { Update } from "../store/update.ts";

/** How many nodes record their part of a trace: enough to see how they differ, few enough for any collector. */
const tracedNodes = 50;

/** Most objects, and most trigger times, that a span names. */
const maxNamed = 10;

/**
 * Returns what a store calls for each revision: it begins a trace with the stages that are over by then, or goes on with
 * the trace that another watcher began.
 *
 * What a source delivers at once is one revision and so one trace, however many objects it is.
 */
export function traceRevisions(tracing: Tracing): (update: Update) => TracedRevision | undefined {
  return (update) => {
    const { before, next, origin, beganAtMs } = update;
    // A first view of the whole cluster is nobody's change.
    const upstream = before.isSynced ? origin?.upstream : undefined;
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

/** The objects are those that differ by value: what a list or a file had beside them is no part of the change. */
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

/** The first that are different. */
function firstOf<T>(values: Iterable<T>): readonly T[] {
  const first = new Set<T>();
  for (const value of values) {
    if (first.size === maxNamed) break;
    first.add(value);
  }
  return [...first];
}
