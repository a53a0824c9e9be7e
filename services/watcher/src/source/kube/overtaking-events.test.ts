import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { makeDecodeOptions } from "../decode/decode-options.ts";
import type { KubeConnection, KubeResponse } from "./client/connection.ts";
import { kubeSource } from "./kube-source.ts";

const ports = [{ port: 80, protocol: "TCP" }];

/** A healthy API server. Each answer to a probe is overtaken by an event of a change that came after it. */
class OvertakingServer implements KubeConnection {
  readonly server = "fake";
  probeCount = 0;
  listCount = 0;
  #version = 1_000;
  readonly #watches = new Set<(line: string) => void>();

  async get(path: string, signal: AbortSignal): Promise<KubeResponse> {
    const { pathname, searchParams } = new URL(path, "http://fake");
    const isServices = pathname.endsWith("/services");
    if (pathname.endsWith("/servicecidrs")) return respond(404, { code: 404 });
    if (searchParams.has("watch")) return { status: 200, body: this.#watch(isServices, signal) };
    if (pathname.endsWith("/kube-system")) return respond(200, { metadata: { uid: "cluster" } });
    const answer = { metadata: { resourceVersion: String(this.#version) }, items: isServices ? [this.#service()] : [] };
    if (searchParams.get("limit") !== "1") {
      this.listCount += 1;
      return respond(200, answer);
    }
    this.probeCount += 1;
    this.#version += 1;
    for (const send of this.#watches) send(`${JSON.stringify({ type: "MODIFIED", object: this.#service() })}\n`);
    // The event is read first.
    await new Promise((resolve) => setTimeout(resolve, 20));
    return respond(200, answer);
  }

  async post(): Promise<KubeResponse> {
    throw new Error("nothing is posted");
  }

  close(): void {}

  #service() {
    const version = String(this.#version);
    const metadata = { name: "a", namespace: "ns", uid: "u", resourceVersion: version, labels: { version } };
    return { metadata, spec: { clusterIP: "10.0.0.1", clusterIPs: ["10.0.0.1"], ports, type: "ClusterIP" } };
  }

  async *#watch(isServices: boolean, signal: AbortSignal): AsyncGenerator<Buffer> {
    const lines: string[] = [];
    let wake: () => void = () => undefined;
    const send = (line: string): void => {
      lines.push(line);
      wake();
    };
    if (isServices) this.#watches.add(send);
    while (!signal.aborted) {
      for (const line of lines.splice(0)) yield Buffer.from(line);
      const sent = new Promise<void>((resolve) => {
        wake = resolve;
      });
      if (lines.length === 0) await Promise.race([sent, aborted(signal)]);
    }
    throw new Error("aborted");
  }
}

function respond(status: number, body: unknown): KubeResponse {
  const text = Buffer.from(`${JSON.stringify(body)}\n`);
  return {
    status,
    body: (async function* () {
      yield text;
    })(),
  };
}

test("a healthy server whose answers are overtaken by events is not taken for a restored one", async () => {
  const server = new OvertakingServer();
  const store = new Store();
  const stop = new AbortController();
  const running = kubeSource({
    connection: server,
    sink: store,
    decode: makeDecodeOptions(),
    metrics: new Registry(),
    health: new Health(),
    log: createLog("error", () => undefined),
    timing: { usesWatchList: false },
    staleAfterMs: 600,
  }).run(stop.signal);
  await expect.poll(() => store.snapshot.isSynced).toBe(true);
  const reasons: string[] = [];
  store.currency.observe((event) => {
    if (event.kind === "stale") reasons.push(event.reason);
  });
  const { listCount, probeCount } = server;
  await expect.poll(() => server.probeCount).toBeGreaterThan(probeCount + 5);
  expect({ reasons, lists: server.listCount - listCount }).toEqual({ reasons: [], lists: 0 });
  stop.abort();
  await running;
});
