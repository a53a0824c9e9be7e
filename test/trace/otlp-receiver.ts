import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";
import { decodeSpans, type ReceivedSpan } from "./spans.ts";

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

export function describeSpan({ traceId, spanId, parentId, name, startMs, endMs, attributes, resource }: ReceivedSpan) {
  const who = `${resource["service.name"]} ${attributes["k8s.node.name"] ?? ""}`.trim();
  const times = `${startMs.toFixed(3)} +${(endMs - startMs).toFixed(3)} ms`;
  return `${traceId.slice(0, 6)} ${parentId.slice(0, 4) || "----"} > ${spanId.slice(0, 4)} ${name.padEnd(16)} ${times} ${who}`;
}
