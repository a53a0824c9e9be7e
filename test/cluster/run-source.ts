import assert from "node:assert/strict";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { afterEach } from "vitest";
import { makeDecodeOptions } from "../../services/watcher/src/source/decode/decode-options.ts";
import { connectKube } from "../../services/watcher/src/source/kube/client/connect.ts";
import type { KubeConnection } from "../../services/watcher/src/source/kube/client/connection.ts";
import { kubeSource } from "../../services/watcher/src/source/kube/kube-source.ts";
import type { BrakeOptions } from "../../services/watcher/src/source/kube/objects/brake.ts";
import type { ReflectorTiming } from "../../services/watcher/src/source/kube/reflector/reflector-options.ts";
import type { Kind } from "../../services/watcher/src/source/source.ts";
import { RecordingSink } from "./recording-sink.ts";
import { until } from "./until.ts";

export interface RunOptions {
  readonly kubeconfig: string;
  readonly timing?: ReflectorTiming | undefined;
  readonly brake?: BrakeOptions | undefined;
  /** Stands between the source and its connection. */
  readonly intercept?: ((connection: KubeConnection) => KubeConnection) | undefined;
}

/** A Kubernetes source that runs against a recording sink, and all that it says. */
export class RunningSource {
  readonly sink = new RecordingSink();
  readonly health = new Health();
  readonly metrics = new Registry();
  /** Its log, a parsed line each. */
  readonly lines: Readonly<Record<string, unknown>>[] = [];
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;

  constructor({ kubeconfig, timing, brake, intercept = (same) => same }: RunOptions) {
    const source = kubeSource({
      connection: intercept(connectKube({ kubeconfig })),
      sink: this.sink,
      decode: makeDecodeOptions(),
      metrics: this.metrics,
      health: this.health,
      log: createLog("debug", (line) => this.lines.push(JSON.parse(line))),
      // Waits of a person's patience are cut to those of a test's.
      timing: { backoff: { minMs: 100, maxMs: 500 }, ...timing },
      brake,
    });
    this.#done = source.run(this.#stop.signal);
  }

  /** Waits until the sink shows what `check` looks for. */
  until(what: string, check: (sink: RecordingSink) => boolean | undefined, timeoutMs?: number): Promise<true> {
    return until(
      what,
      () => check(this.sink) === true && (true as const),
      timeoutMs,
      () => this.describe(),
    );
  }

  async untilReady(): Promise<void> {
    await until(
      "the source is ready",
      () => this.health.parts.size >= 3 && this.health.isReady,
      15_000,
      () => this.describe(),
    );
  }

  /** Waits until the health of a kind gives a reason that matches, and checks that the log has said so. */
  async untilFailing(kind: Kind, reason: RegExp, timeoutMs = 10_000): Promise<void> {
    const isSaid = (): boolean => reason.test(this.health.parts.get(`source/kube/${kind}`)?.reason ?? "");
    await until(`the health of ${kind} says ${reason}`, isSaid, timeoutMs, () => this.describe());
    const isLogged = this.lines.some(
      (line) => line.kind === kind && line.level === "error" && reason.test(String(line.reason)),
    );
    assert.ok(isLogged, `the log says nothing of it:\n${this.describe()}`);
  }

  async untilHealthy(): Promise<void> {
    await until(
      "all is well",
      () => this.health.isHealthy,
      20_000,
      () => this.describe(),
    );
  }

  /** Sum of a metric's values over all label sets that include `labels`. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    const metric = await this.metrics.getSingleMetric(name)?.get();
    const values = metric?.values ?? [];
    return values
      .filter((value) =>
        Object.entries(labels).every(([key, wanted]) => (value.labels as Record<string, unknown>)[key] === wanted),
      )
      .reduce((sum, { value }) => sum + value, 0);
  }

  /** True if a line has this message and a reason that matches. */
  hasLogged(message: string, reason = /^/): boolean {
    return this.lines.some((line) => line.msg === message && reason.test(String(line.reason ?? "")));
  }

  /** What a failing test prints. */
  describe(): string {
    const { services, slices, nodes } = this.sink;
    const log = this.lines.slice(-25).map((line) => JSON.stringify(line));
    return [`services ${services}`, `slices ${slices}`, `nodes ${nodes}`, ...this.sink.violations, ...log].join("\n");
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }
}

/** Returns a function that starts sources; those that a test started end with it, also where it fails. */
export function sourceStarter(): (options: RunOptions) => RunningSource {
  const running: RunningSource[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((source) => source.stop()));
  });
  return (options) => {
    const source = new RunningSource(options);
    running.push(source);
    return source;
  };
}
