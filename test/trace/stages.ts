import type { ReceivedSpan } from "./spans.ts";

/** One trace. A complete one has a root and no orphans. */
export interface Trace {
  /** Span of the change, the ancestor of all other spans. */
  readonly root: ReceivedSpan;
  readonly spans: readonly ReceivedSpan[];
  /** Nodes with a `backend.apply`, in no order. */
  readonly nodes: readonly string[];
}

/** Groups spans into traces, ordered by the start of their roots; traces without a root are omitted. */
export function tracesOf(spans: readonly ReceivedSpan[]): readonly Trace[] {
  return [...Map.groupBy(spans, ({ traceId }) => traceId).values()]
    .flatMap((all) => {
      const root = all.find(({ parentId }) => parentId === "");
      if (root === undefined) return [];
      const applied = all.filter(({ name }) => name === "backend.apply");
      return [{ root, spans: all, nodes: applied.map(({ attributes }) => String(attributes["k8s.node.name"])) }];
    })
    .sort((a, b) => a.root.startMs - b.root.startMs);
}

/** Returns the distinct names of a trace's spans, sorted. */
export function stageNames({ spans }: Trace): readonly string[] {
  return [...new Set(spans.map(({ name }) => name))].sort();
}

export const watcherStages = ["change", "source.decode", "store.apply", "stream.send", "view.compute"];
export const backendStages = ["backend.apply", "backend.commit", "backend.receive", "backend.render", "backend.wait"];

/** Stages on the path to a node, in order. */
const way = ["source.decode", "store.apply", "backend.receive", "backend.wait", "backend.render", "backend.commit"];

/**
 * Returns the problem of the path of a change to a node. Undefined if its stages follow each other and their sum
 * differs by at most 5% from the time between the start of the change and the end of the commit.
 */
export function faultOfWay({ root, spans }: Trace, nodeName: string): string | undefined {
  const stages = way.map((name) =>
    spans.find((span) => span.name === name && (span.attributes["k8s.node.name"] ?? nodeName) === nodeName),
  );
  const missing = way.filter((_, index) => stages[index] === undefined);
  if (missing.length > 0) return `${nodeName} lacks ${missing.join(", ")}`;
  const there = stages.filter((stage) => stage !== undefined);
  const sumMs = there.reduce((sum, { startMs, endMs }) => sum + endMs - startMs, 0);
  const wholeMs = (there.at(-1)?.endMs ?? 0) - root.startMs;
  if (Math.abs(sumMs - wholeMs) > 0.05 * wholeMs) return `${nodeName}: stages take ${sumMs} ms of ${wholeMs}`;
  const gap = there.find(({ startMs }, index) => index > 0 && startMs < (there[index - 1]?.endMs ?? 0) - 0.1);
  return gap === undefined ? undefined : `${nodeName}: ${gap.name} begins before the stage before it ends`;
}

/** Returns the spans whose parent did not arrive; a complete trace has none. */
export function orphans({ spans }: Trace): readonly ReceivedSpan[] {
  const known = new Set(spans.map(({ spanId }) => spanId));
  return spans.filter(({ parentId }) => parentId !== "" && !known.has(parentId));
}
