import { serviceKey } from "@kpng/model/service.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { makeDecodeOptions } from "@kpng/source/decode/decoded.ts";
import { connectKube } from "@kpng/source/kube/connect.ts";
import { kubeSource } from "@kpng/source/kube/kube-source.ts";
import type { ReflectorTiming } from "@kpng/source/kube/reflector.ts";
import type { ClusterObjects, ClusterSink, Kind, ObjectChange, ObjectOf, Origin } from "@kpng/source/source.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { Registry } from "prom-client";
import { afterEach, onTestFailed } from "vitest";
import { until } from "./until.ts";

/** Summary of one call of a sink. */
export type Given =
  | { readonly kind: "apply"; readonly changes: readonly ObjectChange[] }
  | { readonly kind: "replace"; readonly objects: ClusterObjects };

/** Store that records every call and checks a rule on the state after each of them. */
export class RecordingSink implements ClusterSink {
  readonly store = new Store();
  readonly currency = this.store.currency;
  readonly calls: Given[] = [];
  /** Violations of the rule, one entry per call that caused one. */
  readonly violations: string[] = [];
  /** Returns the problem of the state, or undefined. */
  rule: (sink: RecordingSink) => string | undefined = () => undefined;

  apply(changes: readonly ObjectChange[]): void {
    this.store.apply(changes);
    this.#called({ kind: "apply", changes });
  }

  hasState(objects: ClusterObjects): boolean {
    return this.store.hasState(objects);
  }

  find<K extends Kind>(kind: K, key: string): ObjectOf[K] | undefined {
    return this.store.find(kind, key);
  }

  replace(objects: ClusterObjects, origin?: Origin): void {
    this.store.replace(objects, origin);
    this.#called({ kind: "replace", objects });
  }

  /** Keys of the Services: `namespace/name`, sorted. */
  get services(): readonly string[] {
    return [...this.store.snapshot.services.values()].map(serviceKey).sort();
  }

  /** All addresses of the endpoints of a Service, sorted. */
  addressesOf(service: `${string}/${string}`): readonly string[] {
    const slices = this.store.snapshot.slicesByService.get(service) ?? [];
    return slices
      .flatMap((slice) => slice.endpoints)
      .flatMap(({ addresses }) => [...addresses.v4, ...addresses.v6])
      .sort();
  }

  /** Number of times that a list replaced a whole kind. */
  replaceCountOf(kind: keyof ClusterObjects): number {
    return this.calls.filter((call) => call.kind === "replace" && call.objects[kind] !== undefined).length;
  }

  #called(call: Given): void {
    this.calls.push(call);
    const violation = this.rule(this);
    if (violation !== undefined) this.violations.push(`call ${this.calls.length}: ${violation}`);
  }
}

interface RunOptions {
  readonly kubeconfig: string;
  readonly timing?: ReflectorTiming | undefined;
}

/** Kubernetes source that feeds a recording sink, with its log, health and metrics. */
export class RunningSource {
  readonly sink = new RecordingSink();
  readonly health = new Health();
  readonly metrics = new Registry();
  /** Parsed lines of its log. */
  readonly lines: Readonly<Record<string, unknown>>[] = [];
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;

  constructor({ kubeconfig, timing }: RunOptions) {
    const log = createLog("debug", (line) => this.lines.push(JSON.parse(line)));
    const source = kubeSource({
      connection: connectKube({ kubeconfig }),
      sink: this.sink,
      decode: makeDecodeOptions(),
      metrics: this.metrics,
      health: this.health,
      log,
      // Shortens the delays for a test.
      timing: { backoff: { minMs: 100, maxMs: 500 }, ...timing },
    });
    this.#done = source.run(this.#stop.signal);
  }

  /** Waits until `check` accepts the sink. */
  until(what: string, check: (sink: RecordingSink) => boolean | undefined, timeoutMs?: number): Promise<true> {
    return until(what, () => check(this.sink) === true && (true as const), timeoutMs);
  }

  async untilReady(): Promise<void> {
    await until("the source is ready", () => this.health.parts.size >= 3 && this.health.isReady);
  }

  /**
   * Waits until the log names a matching reason and the health of the kind names a reason. The health names only the
   * newest one: after a watch that broke, soon that of the check that follows.
   */
  async untilFailing(kind: Kind, reason: RegExp, timeoutMs = 60_000): Promise<void> {
    const isSaid = (): boolean =>
      (this.health.parts.get(`source/kube/${kind}`)?.reason ?? "") !== "" &&
      this.lines.some((line) => line.kind === kind && line.level === "error" && reason.test(String(line.reason)));
    await until(`the log says ${reason} about ${kind}`, isSaid, timeoutMs);
  }

  async untilHealthy(): Promise<void> {
    await until("all is well", () => this.health.isHealthy, 60_000);
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

  /** Returns whether a line has this message and a matching reason. */
  hasLogged(message: string, reason = /^/): boolean {
    return this.lines.some((line) => line.msg === message && reason.test(String(line.reason ?? "")));
  }

  /** Returns the state and the end of the log, in at most 40 lines, for a failing test. */
  describe(): string {
    const { services, violations } = this.sink;
    const log = this.lines.slice(-25).map((line) => JSON.stringify(line));
    const state = [`services ${services}`, ...violations.slice(0, 10)];
    return [...state, ...log].map((line) => line.slice(0, 400)).join("\n");
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }
}

/** Returns a function that starts sources. They stop at the end of the test; if it fails, it prints what they have. */
export function sourceStarter(): (options: RunOptions) => RunningSource {
  const running: RunningSource[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((source) => source.stop()));
  });
  return (options) => {
    const source = new RunningSource(options);
    onTestFailed(() => void process.stderr.write(`${source.describe()}\n`));
    running.push(source);
    return source;
  };
}
