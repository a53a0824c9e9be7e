import { setTimeout as sleep } from "node:timers/promises";

/**
 * Traces as the viewer of docker-compose.yaml has them. `show.ts` prints one with it.
 *
 * Source: the JSON of Jaeger's query service, `GET /api/traces`.
 */

/** The trace of one change. */
export interface Trace {
  /** Hexadecimal. */
  readonly id: string;
  readonly spans: readonly Span[];
}

interface Span {
  readonly id: string;
  /** Id of the parent; undefined for the first span. */
  readonly parent: string | undefined;
  readonly name: string;
  readonly process: string;
  /** Microseconds since 1970. */
  readonly start: number;
  /** Microseconds. */
  readonly duration: number;
}

interface JaegerTrace {
  readonly traceID: string;
  readonly spans: readonly {
    readonly spanID: string;
    readonly operationName: string;
    readonly references?: readonly { readonly refType: string; readonly spanID: string; readonly traceID: string }[];
    readonly startTime: number;
    readonly duration: number;
    readonly processID: string;
  }[];
  readonly processes: Readonly<Record<string, { readonly serviceName: string }>>;
}

const query = "http://viewer:16686/api/traces?service=kpng-watcher&lookback=1h&limit=50";

/**
 * Waits for a trace of a change that the watcher read after `afterMs` (milliseconds since 1970) and that each of
 * `backends` has committed. Throws when `signal` aborts.
 */
export async function findTrace(afterMs: number, backends: readonly string[], signal: AbortSignal): Promise<Trace> {
  for (;;) {
    const traces = await readTraces(signal);
    const found = traces.find(
      ({ spans }) =>
        spans.some(({ name, start }) => name === "change" && start >= afterMs * 1_000) &&
        backends.every((backend) =>
          spans.some(({ name, process }) => name === "backend.commit" && process === `kpng-${backend}`),
        ),
    );
    if (found !== undefined) return found;
    if (signal.aborted)
      throw new Error(`no trace of the change in http://viewer:16686; it has ${traces.length} traces`);
    await sleep(500);
  }
}

/** Returns the traces that the viewer has; none while it does not answer. */
async function readTraces(signal: AbortSignal): Promise<readonly Trace[]> {
  const response = await fetch(query, { signal }).catch(() => undefined);
  if (response?.ok !== true) return [];
  const { data } = (await response.json()) as { readonly data: readonly JaegerTrace[] };
  return data.map(({ traceID, spans, processes }) => ({
    id: traceID,
    spans: spans.map((span) => ({
      id: span.spanID,
      parent: span.references?.find(({ refType, traceID: id }) => refType === "CHILD_OF" && id === traceID)?.spanID,
      name: span.operationName,
      process: processes[span.processID]?.serviceName ?? "",
      start: span.startTime,
      duration: span.duration,
    })),
  }));
}

/** Formats a trace as a tree, one span per line: start and duration in milliseconds, name, process. */
export function formatTrace({ spans }: Trace): string {
  const begin = Math.min(...spans.map(({ start }) => start));
  const ms = (time: number): string => (time / 1_000).toFixed(1).padStart(7);
  const lines = (parent: string | undefined, indent: string): string =>
    spans
      .filter((span) => span.parent === parent)
      .sort((a, b) => a.start - b.start)
      .map(
        ({ id, name, process, start, duration }) =>
          `${ms(start - begin)} ms +${ms(duration)} ms  ${(indent + name).padEnd(22)} ${process}\n${lines(id, `${indent}  `)}`,
      )
      .join("");
  return lines(undefined, "");
}
