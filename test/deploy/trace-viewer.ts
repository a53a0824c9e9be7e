import { createServer } from "node:http";
import { type ReceivedSpan, startOtlpReceiver } from "../trace/traces.ts";

// Stands for the trace viewer of docker-compose.yaml, whose image comes from a registry: receives spans by OTLP on port
// 4317, and answers /api/traces on port 16686 and the health check on port 14269 as Jaeger does. containers.test.ts
// runs it in a container.

const receiver = await startOtlpReceiver("0.0.0.0:4317");
const server = createServer((request, response) => {
  response.setHeader("content-type", "application/json");
  response.end(
    JSON.stringify({ data: request.url?.startsWith("/api/traces") === true ? tracesOf(receiver.spans) : [] }),
  );
});
server.listen(16686, "0.0.0.0");
createServer((_, response) => response.end('{"status":"Server available"}')).listen(14269, "0.0.0.0");
process.once("SIGTERM", () => process.exit());

function tracesOf(spans: readonly ReceivedSpan[]): unknown {
  return [...Map.groupBy(spans, ({ traceId }) => traceId)].map(([traceID, members]) => ({
    traceID,
    spans: members.map(({ spanId, parentId, name, startMs, endMs, resource }) => ({
      traceID,
      spanID: spanId,
      operationName: name,
      references: parentId === "" ? [] : [{ refType: "CHILD_OF", traceID, spanID: parentId }],
      startTime: Math.round(startMs * 1_000),
      duration: Math.round((endMs - startMs) * 1_000),
      processID: String(resource["service.name"]),
    })),
    processes: Object.fromEntries(
      members.map(({ resource }) => [String(resource["service.name"]), { serviceName: resource["service.name"] }]),
    ),
  }));
}
