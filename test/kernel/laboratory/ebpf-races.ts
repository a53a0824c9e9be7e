// Programs of ebpf-races.nightly.test.ts, in a namespace of the laboratory: `node ebpf-races.ts WHAT CGROUP SEED`. The second thread of "connect" runs this file, too.
import { writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { readEbpfSettings } from "@kpng/backend-ebpf/backend.ts";
import { Datapath } from "@kpng/backend-ebpf/datapath/datapath.ts";
import { FamilyTables } from "@kpng/backend-ebpf/datapath/family-tables.ts";
import { EbpfMaps, GracePeriods } from "@kpng/backend-ebpf/datapath/maps.ts";
import { SocketRuleSet } from "@kpng/backend-ebpf/datapath/socket-rule-set.ts";
import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { noAddresses } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { createLog } from "@kpng/process/log.ts";
import type { Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { Dice } from "../../peer/kube-proxy/generate-pods.ts";

/** Places in the maps that were given up, before and after a grace period. */
interface HeldPlaces {
  /** The maps have the same bytes there while programs may still read them. */
  readonly isKept: boolean;
  readonly isReused: boolean;
}

const [, , what = "", cgroup = "", seed = "0"] = process.argv;
const log = createLog("off");
const nothing = (): void => undefined;

/** Service `race/NUMBER` at 10.96.0.NUMBER:80, with endpoints at ports of 10.200.0.1. */
class RacePlan implements FamilyPlan {
  readonly node = nodePlan({ family: "v4" });
  readonly #services = new Map<ServiceKey, ServicePlan>();

  keys(): Iterable<ServiceKey> {
    return this.#services.keys();
  }

  service(key: ServiceKey): ServicePlan | undefined {
    return this.#services.get(key);
  }

  put(number: number, ports: readonly number[]): void {
    const key = `race/${number}` as const;
    if (ports.length === 0) {
      this.#services.delete(key);
      return;
    }
    const route: Route = { kind: "balance", set: "cluster", isMasqueraded: false };
    const place = { kind: "clusterIP", address: `10.96.0.${number}`, protocol: "TCP", port: 80 } as const;
    const frontends = [{ ...place, sources: undefined, routes: { pod: route, node: route, outside: route } }];
    const sets = { cluster: ports.map((port) => ({ address: "10.200.0.1", port })), local: [] };
    const port = { name: key, protocol: "TCP", port: 80, affinitySeconds: undefined, sets, frontends } as const;
    this.#services.set(key, { key, family: "v4", ports: [port], hairpin: [], healthCheck: undefined });
  }
}

function settingsOf(proxyName: string, maxEndpoints = 256) {
  return readEbpfSettings({ cgroup, maxFrontends: 64, maxEndpoints }, proxyName);
}

/** Loads the programs 30 times. */
function loadOften(): string {
  for (let count = 0; count < 30; count++) Datapath.open({ ...settingsOf("often"), log });
  return "loaded";
}

/** Starts twice on a node with IPv4 only. Returns what the second start changes. */
async function restartWithOneFamily(): Promise<string> {
  const settings = settingsOf("one");
  const { mapSizes } = settings;
  let changed: readonly string[] = [];
  for (let start = 0; start < 2; start++) {
    const datapath = Datapath.open({ ...settings, log });
    const ruleSet = new SocketRuleSet({ family: "v4", datapath, mapSizes, localAddresses: () => noAddresses, log });
    const change = await ruleSet.sync(new RacePlan(), "all");
    changed = change.differences().map(({ summary }) => summary);
  }
  return changed.join("\n");
}

/** What waits for a grace period. */
const releases: (() => void)[] = [];

/** Grace periods that end when `releases` are called. */
class HeldPeriods extends GracePeriods {
  override after(release: () => void): void {
    releases.push(release);
  }
}

async function holdPlaces(): Promise<HeldPlaces> {
  const { folder, mapSizes } = settingsOf("held");
  const maps = EbpfMaps.open(folder, mapSizes);
  const tables = new FamilyTables("v4", maps, new HeldPeriods(), mapSizes);
  const plan = new RacePlan();
  const put = (number: number, ports: readonly number[]): void => {
    plan.put(number, ports);
    tables.sync(plan, [`race/${number}`]);
  };
  await tables.syncAll(plan);
  put(1, [1, 2, 3]);
  put(2, [4]);
  const memory = (["slots", "endpoints"] as const).map((name) => maps.get(name).memory);
  const before = memory.map((bytes) => Buffer.from(bytes));
  // What was unused may be used.
  const isKept = (): boolean =>
    memory.every((now, at) => before[at]?.every((byte, index) => byte === 0 || now[index] === byte));
  put(2, []);
  for (let number = 10; number < 30; number++) put(number, [number, number + 1, number + 2]);
  const kept = isKept();
  for (const release of releases.splice(0)) release();
  for (let number = 30; number < 40; number++) put(number, [number]);
  return { isKept: kept, isReused: !isKept() };
}

/** Ports of the endpoints of three Services; only those of the first may answer at its address. */
const portsOf = (number: number): readonly number[] => Array.from({ length: 9 }, (_, at) => 8_000 + number * 10 + at);

/**
 * Connects to Service 1 without a pause while it and two others get other endpoints, or none. Returns the number of
 * connections by the port that answered.
 */
async function connectDuringChanges(): Promise<Readonly<Record<string, number>>> {
  const dice = new Dice(Number(seed));
  const plan = new RacePlan();
  const settings = settingsOf("race", 8_192);
  writeFileSync(join(cgroup, "cgroup.procs"), String(process.pid));
  plan.put(1, portsOf(1));
  const datapath = Datapath.open({ ...settings, log });
  const localAddresses = () => noAddresses;
  const ruleSet = new SocketRuleSet({ family: "v4", datapath, mapSizes: settings.mapSizes, localAddresses, log });
  await ruleSet.sync(plan, "all");
  const worker = new Worker(fileURLToPath(import.meta.url));
  const counts = new Promise<Record<string, number>>((resolve) => worker.once("message", resolve));
  for (const endMs = performance.now() + 10_000; performance.now() < endMs; ) {
    const number = dice.pick([1, 1, 2, 3]);
    plan.put(number, dice.chance(30) ? [] : portsOf(number).filter(() => dice.chance(40)));
    await ruleSet.sync(plan, new Set([`race/${number}` as const]));
    await nextTurn();
  }
  worker.postMessage("end");
  const byPort = await counts;
  writeFileSync(join(cgroup, "..", "cgroup.procs"), String(process.pid));
  return byPort;
}

/** The second thread: serves all endpoints, connects until it gets a message, and answers with the counts. */
async function connectOften(): Promise<void> {
  for (const port of [1, 2, 3].flatMap(portsOf)) {
    createServer((socket) => socket.on("error", nothing).end(String(port))).listen(port, "10.200.0.1");
  }
  const counts: Record<string, number> = {};
  let isOver = false;
  parentPort?.once("message", () => {
    isOver = true;
  });
  const ask = (): Promise<string> =>
    new Promise((resolve) => {
      const socket = connect({ host: "10.96.0.1", port: 80 });
      socket.once("data", (data) => {
        resolve(String(data));
        socket.resetAndDestroy();
      });
      socket.once("error", () => resolve("none"));
    });
  while (!isOver) {
    for (const port of await Promise.all([ask(), ask(), ask()])) counts[port] = (counts[port] ?? 0) + 1;
    // A connection without a route fails before the message could arrive.
    await nextTurn();
  }
  parentPort?.postMessage(counts);
}

if (!isMainThread) await connectOften();
else if (what === "load") process.stdout.write(loadOften());
else if (what === "restart") process.stdout.write(await restartWithOneFamily());
else if (what === "hold") process.stdout.write(JSON.stringify(await holdPlaces()));
else if (what === "connect") {
  process.stdout.write(JSON.stringify(await connectDuringChanges()), () => process.exit());
}
