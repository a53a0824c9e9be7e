// Shows which endpoints connections get while maps and programs of kpng-ebpf are replaced: `node
// connect-during-changes.ts BPF-FOLDER CGROUP SEED CHANGES`, in a namespace of the laboratory. A thread connects to
// Service 1 without a pause; a foreign program after ours counts the last byte of each destination. Meanwhile Service 1
// gets other endpoints, or none, other Services take and give up places in the maps, and programs are replaced as a
// restart does. Prints `SeenConnections` as JSON; `ebpf-races.nightly.test.ts` knows what is right.
import { closeSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { readEbpfSettings } from "@kpng/backend-ebpf/backend.ts";
import { BpfMap, mapFlags, mapTypes } from "@kpng/backend-ebpf/bpf/bpf-map.ts";
import { loadProgram } from "@kpng/backend-ebpf/bpf/program.ts";
import { makeAttribute, requireBpf } from "@kpng/backend-ebpf/bpf/system-call.ts";
import { Datapath } from "@kpng/backend-ebpf/datapath/datapath.ts";
import { SocketRuleSet } from "@kpng/backend-ebpf/datapath/socket-rule-set.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import { noAddresses } from "@kpng/model/address.ts";
import { createLog } from "@kpng/process/log.ts";
import { Dice } from "../../peer/kube-proxy/generate-pods.ts";
import { add, addTo, call, copy, finish, instruction, load, set, setMap, skipIf, store } from "../laboratory/bpf.ts";
import { RacePlan } from "./race-plan.ts";

/** Connections that a program after ours has seen. */
export interface SeenConnections {
  /** Number of connections by the last byte of their destination; "refused" for those that a program denied. */
  readonly byLastByte: Readonly<Record<string, number>>;
  /** How often the programs were replaced. */
  readonly replacements: number;
}

const [bpfFolder = "", cgroup = "", seed = "0", changes = "0"] = process.argv.slice(2);
const dice = new Dice(Number(seed));
const sizes = { maxFrontends: 64, maxEndpoints: 2_048 };
const settings = readEbpfSettings({ bpfFolder, cgroup, instanceName: "kpng-race", ...sizes }, "");
const plan = new RacePlan();
const stages = { committing: (): void => undefined };

/** Attaches a program that counts, after all that are attached. */
function attachWitness(): BpfMap {
  const array = { type: mapTypes.array, keyBytes: 4, valueBytes: 8, maxEntries: 256, flags: mapFlags.mappable };
  const seen = BpfMap.create({ ...array, name: "seen" });
  const [getResult, lookUp] = [186, 1];
  const code = [
    ...[copy(6, 1), call(getResult), load(2, 6, 4), instruction(0x77, 2, 0, 0, 24), skipIf(0, 0, 1), set(2, 0)],
    ...[store(10, -4, 2), copy(2, 10), add(2, -4), ...setMap(1), call(lookUp), skipIf(0, 0, 2), set(1, 1), addTo(0, 1)],
    ...finish(1),
  ];
  const references = [{ instruction: 9, symbol: "seen" }];
  const { descriptor } = loadProgram(
    { code: Buffer.concat(code), references },
    { name: "witness", type: 18, attachType: 10 },
    new Map([["seen", seen.descriptor]]),
  );
  const folder = openSync(cgroup, "r");
  // Detached with the process, which keeps the descriptor.
  requireBpf("witness", 28, makeAttribute(48, [0, descriptor], [4, folder], [8, 10]));
  closeSync(folder);
  return seen;
}

/** Starts as a new process does: with the maps of an earlier run, and programs of its own. */
async function open(): Promise<{ readonly ruleSet: SocketRuleSet; readonly datapath: Datapath }> {
  const log = createLog("off");
  const datapath = Datapath.open({ ...settings, log }, ["v4"]);
  const ruleSet = new SocketRuleSet({
    ...{ family: "v4", datapath, mapSizes: settings.mapSizes, log },
    localAddresses: () => noAddresses,
  });
  await ruleSet.sync(plan, "all", stages);
  return { ruleSet, datapath };
}

/** Some of the numbers from `first` to `first + 8`, often none. */
const endpoints = (first: number): number[] => {
  const numbers = Array.from({ length: 9 }, (_, at) => first + at);
  return dice.chance(50) ? [] : dice.some(numbers, 30);
};

writeFileSync(join(cgroup, "cgroup.procs"), String(process.pid));
plan.put(1, [1]);
let running = await open();
const seen = attachWitness();
const stop = new Int32Array(new SharedArrayBuffer(4));
const worker = new Worker(new URL("connect-worker.ts", import.meta.url), {
  workerData: { address: RacePlan.address(1), stop },
});
const count = (at: number): number => seen.memory.readUInt32LE(at * 8);
while (count(1) === 0) await nextTurn();

let replacements = 0;
for (let change = 1; change <= Number(changes); change++) {
  const number = dice.pick([1, 1, 2, 3]);
  if (number !== 1 && dice.chance(30)) plan.delete(number);
  else plan.put(number, endpoints(number === 1 ? 1 : number * 50));
  await running.ruleSet.sync(plan, new Set([`race/${number}` as const]), stages);
  // Places in the maps are free again after a grace period.
  await (change % 50 === 0 ? running.datapath.grace.pass() : nextTurn());
  if (change % 1_000 !== 0) continue;
  running = await open();
  replacements++;
}
Atomics.store(stop, 0, 1);
await new Promise((resolve) => worker.once("exit", resolve));
const used = Array.from({ length: 256 }, (_, at) => at).filter((at) => count(at) > 0);
const byLastByte = Object.fromEntries(used.map((at) => [at === 0 ? "refused" : String(at), count(at)]));
const result: SeenConnections = { byLastByte, replacements };
process.stdout.write(JSON.stringify(result));
writeFileSync(join(cgroup, "..", "cgroup.procs"), String(process.pid));
