import { assertNever } from "@kpng/model/assert-never.ts";
import { sliceKey } from "@kpng/model/endpoint.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { recordSpan, type SpanAttributes, type Tracing } from "@kpng/process/trace/tracing.ts";
import type { ObjectChange } from "../source/source.ts";
import type { TracedRevision } from "../store/snapshot.ts";
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

function describe({ origin, changes, next, instance }: Update): SpanAttributes {
  const common = {
    "kpng.source": origin?.source ?? "",
    "kpng.instance": instance,
    "kpng.revision": next.revision,
  };
  // A list: what differs is all that is known, and it may be everything.
  if (changes === undefined) return { ...common, "kpng.list": true };
  return {
    ...common,
    "kpng.changes": changes.length,
    "kpng.objects": changes.slice(0, maxNamed).map(nameObject),
    ...triggerTimes(changes),
  };
}

/** *Shape:* `put slice namespace/service/slice`. */
function nameObject(change: ObjectChange): string {
  switch (change.kind) {
    case "put-service":
      return `put service ${serviceKey(change.service)}`;
    case "delete-service":
      return `delete service ${change.key}`;
    case "put-slice":
      return `put slice ${sliceKey(change.slice)}`;
    case "delete-slice":
      return `delete slice ${change.key}`;
    case "put-node":
      return `put node ${change.node.name}`;
    case "delete-node":
      return `delete node ${change.name}`;
    default:
      return assertNever(change);
  }
}

/** As the slices' annotations have them, in whole seconds. */
function triggerTimes(changes: readonly ObjectChange[]): SpanAttributes {
  const times = changes.flatMap((change) => (change.kind === "put-slice" ? (change.slice.triggeredAtMs ?? []) : []));
  if (times.length === 0) return {};
  const texts = [...new Set(times)].slice(0, maxNamed).map((ms) => new Date(ms).toISOString());
  return { "kpng.last_change_trigger_times": texts };
}
