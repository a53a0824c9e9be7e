import { create } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { ProxyHealth } from "../observe/proxy-health.ts";
import { proxyBackend } from "../proxy/proxy-backend.ts";
import type { RuleSet } from "../proxy/rule-set.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import { type ReceivedRequest, silence, startFakeWatcher } from "./fake-watcher.ts";
import { putNode, reset } from "./ops.ts";
import { createReadableLog, Mailbox } from "./steps.ts";
import { putView } from "./view-ops.ts";

/** A service proxy in the test's process. */
interface RunningProxy extends AsyncDisposable {
  readonly health: Health;
  readonly proxyHealth: ProxyHealth;
  readonly metrics: Registry;
  readonly lines: readonly Record<string, unknown>[];
  /** Requests that the watcher received. */
  readonly requests: readonly Pick<ReceivedRequest, "request">[];
  /** Resolves or rejects when the proxy has ended. */
  readonly ended: Promise<void>;
  /** Sends a whole view as the next batch. */
  send(...services: readonly ServiceView[]): void;
}

/** Options of {@link runProxy}. `now` is the clock of health; the watcher knows only the Node n1. */
interface RunProxyOptions {
  readonly options?: ParsedOptions | undefined;
  readonly now?: (() => number) | undefined;
  readonly isOnce?: boolean | undefined;
  readonly nodeName?: string | undefined;
  readonly stateFolder?: string | undefined;
  readonly firstViewLimitMs?: number | undefined;
}

/**
 * Runs `proxyBackend` with rule sets of the test, following a watcher of the test (`startFakeWatcher`).
 * `proxy-task.slow.test.ts` calls it in nearly every test.
 */
export async function runProxy(
  ruleSets: readonly RuleSet[],
  { options = {}, now, isOnce = false, nodeName = "n1", stateFolder, firstViewLimitMs }: RunProxyOptions = {},
): Promise<RunningProxy> {
  const batches = new Mailbox<readonly OpItem[]>();
  const watcher = await startFakeWatcher((request) => {
    // An acknowledgement asks for nothing.
    if (request.request.Ack !== undefined) return [];
    return Promise.race([batches.next(), silence(request)]);
  });
  const { log, lines } = createReadableLog();
  const [health, metrics] = [new Health(), new Registry()];
  const proxyHealth = new ProxyHealth({ now });
  const backend = proxyBackend({
    name: "test",
    proxyMode: "iptables",
    description: "",
    examples: "",
    options: [],
    makeProxy: () => ({
      wantsLoopbackNodePorts: false,
      openRuleSets: async () => ({ ruleSets }),
      cleanUp: async () => undefined,
    }),
  });
  const stop = new AbortController();
  const task = backend.makeTask(
    { iptablesSyncPeriod: 20, iptablesMinSyncPeriod: 0, stateDir: stateFolder ?? "none", ...options },
    {
      transport: dial({ api: watcher.address }),
      nodeName,
      serviceProxyName: "",
      errorDelayMs: 10,
      isOnce,
      firstViewLimitMs,
      log,
      health,
      metrics,
      proxyHealth,
    },
  );
  const ended = task.run(stop.signal);
  let revision = 0n;
  return {
    health,
    proxyHealth,
    metrics,
    lines,
    requests: watcher.received,
    ended,
    send: (...services) => {
      const node = nodeName === "n1" ? [putNode("n1")] : [];
      batches.put([reset, ...node, ...services.flatMap(putView), ackedSync(++revision)]);
    },
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await ended.catch(() => undefined);
      await watcher[Symbol.asyncDispose]();
    },
  };
}

function ackedSync(revision: bigint): OpItem {
  const mark = { Revision: revision, Instance: "run", TakesAcks: true };
  return create(OpItemSchema, { Op: { case: "Sync", value: mark } });
}
