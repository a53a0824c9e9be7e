import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";

/** Collector that receives and stores spans by OTLP over gRPC. */
export interface OtlpReceiver extends AsyncDisposable {
  /** Environment variables of processes that export to it. */
  readonly environment: Readonly<Record<string, string>>;
  readonly spans: readonly ReceivedSpan[];
  /** Returns a header of the last call. */
  header(name: string): string | undefined;
  /** Resolves when `holds` accepts the spans; rejects when `signal` aborts, with the spans received. */
  until(holds: (spans: readonly ReceivedSpan[]) => boolean, signal: AbortSignal): Promise<void>;
}

/** Starts a collector. `address` is `127.0.0.1:0` or `unix:/path`. */
export async function startOtlpReceiver(address = "127.0.0.1:0"): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  let arrived = Promise.withResolvers<void>();
  let headers: ReadonlyMap<string, string> = new Map();
  const server = new Server();
  server.addService(
    {
      export: {
        path: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        requestStream: false,
        responseStream: false,
        requestSerialize: () => Buffer.alloc(0),
        requestDeserialize: (bytes: Buffer) => decodeSpans(bytes),
        // An empty response: no span was rejected.
        responseSerialize: () => Buffer.alloc(0),
        responseDeserialize: () => undefined,
      },
    },
    {
      export: (call: ServerUnaryCall<readonly ReceivedSpan[], undefined>, answer: sendUnaryData<undefined>) => {
        headers = new Map(Object.entries(call.metadata.getMap()).map(([name, value]) => [name, String(value)]));
        spans.push(...call.request);
        arrived.resolve();
        arrived = Promise.withResolvers();
        answer(null, undefined);
      },
    },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  const endpoint = address.startsWith("unix:") ? address.replace("unix:", "unix://") : `http://127.0.0.1:${port}`;
  return {
    environment: { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_EXPORTER_OTLP_INSECURE: "true" },
    spans,
    header: (name) => headers.get(name),
    until: async (holds, signal) => {
      const over = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
      while (!holds(spans)) {
        if (signal.aborted)
          throw new Error(`the expected spans did not arrive; received:\n${spans.map(describeSpan).join("\n")}`);
        await Promise.race([arrived.promise, over]);
      }
    },
    [Symbol.asyncDispose]: async () => server.forceShutdown(),
  };
}

function describeSpan({ traceId, spanId, parentId, name, startMs, endMs, attributes, resource }: ReceivedSpan) {
  const who = `${resource["service.name"]} ${attributes["k8s.node.name"] ?? ""}`.trim();
  const times = `${startMs.toFixed(3)} +${(endMs - startMs).toFixed(3)} ms`;
  return `${traceId.slice(0, 6)} ${parentId.slice(0, 4) || "----"} > ${spanId.slice(0, 4)} ${name.padEnd(16)} ${times} ${who}`;
}

/** Span as received by a collector, with the attributes of its process. */
interface ReceivedSpan {
  /** Hexadecimal. */
  readonly traceId: string;
  /** Hexadecimal. */
  readonly spanId: string;
  /** Hexadecimal; "" for the first span of a trace. */
  readonly parentId: string;
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly startMs: number;
  /** Milliseconds since 1970. */
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** Attributes of the process. */
  readonly resource: Readonly<Record<string, unknown>>;
}

/** Field of a message: its number and its encoded value. */
type Field = readonly [number, Uint8Array | bigint];

/**
 * Reads an ExportTraceServiceRequest.
 *
 * Source: opentelemetry-proto, `collector/trace/v1/trace_service.proto` and `trace/v1/trace.proto`.
 */
function decodeSpans(request: Uint8Array): readonly ReceivedSpan[] {
  return messages(request, 1).flatMap((resourceSpans) => {
    const resource = attributesOf(messages(resourceSpans, 1)[0] ?? new Uint8Array(), 1);
    const spans = messages(resourceSpans, 2).flatMap((scopeSpans) => messages(scopeSpans, 2));
    return spans.map((span) => decodeSpan(span, resource));
  });
}

function decodeSpan(span: Uint8Array, resource: ReceivedSpan["resource"]): ReceivedSpan {
  return {
    traceId: hex(span, 1),
    spanId: hex(span, 2),
    parentId: hex(span, 4),
    name: text(span, 5),
    startMs: Number(number(span, 7)) / 1e6,
    endMs: Number(number(span, 8)) / 1e6,
    attributes: attributesOf(span, 9),
    resource,
  };
}

/** Returns the KeyValue messages of a field. */
function attributesOf(message: Uint8Array, at: number): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    messages(message, at).map((pair) => [text(pair, 1), anyValue(messages(pair, 2)[0] ?? new Uint8Array())]),
  );
}

function anyValue(value: Uint8Array): unknown {
  for (const [at, content] of fields(value)) {
    if (typeof content === "bigint") {
      if (at === 2) return content === 1n;
      if (at === 3) return Number(content);
      if (at === 4) return new Float64Array(new BigUint64Array([content]).buffer)[0];
    } else {
      if (at === 1) return new TextDecoder().decode(content);
      if (at === 5) return messages(content, 1).map(anyValue);
    }
  }
  return undefined;
}

function fields(message: Uint8Array): readonly Field[] {
  const reader = new BinaryReader(message);
  const all: Field[] = [];
  while (reader.pos < reader.len) {
    const [at, type] = reader.tag();
    if (type === WireType.LengthDelimited) all.push([at, reader.bytes()]);
    else if (type === WireType.Varint) all.push([at, BigInt(reader.uint64())]);
    else if (type === WireType.Bit64) all.push([at, BigInt(reader.fixed64())]);
    else reader.skip(type, at);
  }
  return all;
}

function messages(message: Uint8Array, at: number): readonly Uint8Array[] {
  return fields(message).flatMap(([number, value]) => (number === at && typeof value !== "bigint" ? [value] : []));
}

function number(message: Uint8Array, at: number): bigint {
  const value = fields(message).findLast(([number]) => number === at)?.[1];
  return typeof value === "bigint" ? value : 0n;
}

function text(message: Uint8Array, at: number): string {
  return new TextDecoder().decode(messages(message, at).at(-1));
}

function hex(message: Uint8Array, at: number): string {
  return Buffer.from(messages(message, at).at(-1) ?? []).toString("hex");
}

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

export const watcherStages = ["change", "source.decode", "store.apply", "stream.send"];
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
