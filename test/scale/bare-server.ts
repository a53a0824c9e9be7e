import { once } from "node:events";
import { createSecureServer, createServer, type Http2Server, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { readServerTls } from "@kpng/process/tls-files.ts";
import { type Frame, syncFrame } from "../../services/watcher/src/items/frames.ts";
import { Store } from "../../services/watcher/src/store/store.ts";
import { nodeProjection } from "../../services/watcher/src/stream/delta/node-projection.ts";
import type { MadeChange } from "./batch-log.ts";
import { answerCalls } from "./calls.ts";
import type { StartOptions } from "./fan-out-server.ts";
import { monotonicMs } from "./monotonic.ts";
import { endpointChange } from "./scripts.ts";
import { cpuMs, type ServerUsage, serverUsage } from "./server-usage.ts";
import { makeCluster, type SyntheticShape } from "./synthetic.ts";

/**
 * Baseline: a node:http2 server that sends every stream the same encoded bytes, and reads the requests without decoding
 * them. It has no views, no pacing and no resume, so the difference to a watcher is the cost of the watcher's own code.
 */
const store = new Store();
const projection = nodeProjection({
  nodeName: "nobody",
  proxyName: "",
  isExtended: true,
  wantsNode: false,
  takesBatches: true,
});
const streams = new Set<ServerHttp2Stream>();
let shape: SyntheticShape = { services: 0, endpoints: 0, nodes: 0 };
let whole: readonly Frame[] = [];
let changesMade = 0;

function marker(): Frame {
  const { revision, storedAtMs, position } = store.snapshot;
  const { instance } = store;
  return syncFrame({
    revision,
    instance,
    storedAtMs,
    triggeredAtMs: [],
    traceparents: [],
    tracedNodes: 0,
    ackIntervalMs: 0,
    trafficIntervalMs: 0,
    position,
  });
}

async function serve(stream: ServerHttp2Stream): Promise<void> {
  stream.on("error", () => undefined);
  stream.once("close", () => streams.delete(stream));
  stream.respond({ ":status": 200, "content-type": "application/grpc+proto" });
  stream.on("data", () => undefined);
  for (const frame of [...whole, marker()]) {
    if (!stream.write(frame) && !stream.destroyed) await Promise.race([once(stream, "drain"), once(stream, "close")]);
  }
  streams.add(stream);
}

const handlers = {
  async start(options: StartOptions) {
    shape = options.shape;
    store.replace(makeCluster(shape));
    whole = [...projection.whole(store.snapshot).frames()];
    const tls = options.tls === undefined ? undefined : readServerTls("", options.tls);
    const server: Http2Server =
      tls === undefined
        ? createServer()
        : createSecureServer({ ...tls(), requestCert: true, rejectUnauthorized: true });
    server.on("stream", (stream) => void serve(stream).catch(() => undefined));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return { address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
  },

  change(_: Record<never, never>): MadeChange & { readonly cpuMs: number } {
    const beganCpuMs = cpuMs();
    const atMs = monotonicMs();
    const before = store.snapshot;
    store.apply([endpointChange(changesMade, shape)]);
    changesMade += 1;
    const bytes = Buffer.concat([...projection.between(before, store.snapshot).frames(), marker()]);
    for (const stream of streams) stream.write(bytes);
    return { revision: store.snapshot.revision, atMs, cpuMs: beganCpuMs };
  },

  cpu(_: Record<never, never>): number {
    return cpuMs();
  },

  usage({ settle }: { readonly settle: boolean }): Promise<ServerUsage> {
    return serverUsage(settle);
  },
};

export type BareServerHandlers = typeof handlers;

answerCalls(handlers);
