// Shows whether the maps of kpng-ebpf stay as a program found them for as long as it runs: `node hold-reader.ts
// BPF-FOLDER`, in a namespace of the laboratory. A program runs in the kernel until it is told to end, so it stands for
// one that read a route and was then interrupted. Meanwhile Services are changed and deleted. Prints `HeldReader` as
// JSON; `ebpf-races.nightly.test.ts` knows what is right.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { readEbpfSettings } from "@kpng/backend-ebpf/backend.ts";
import { BpfMap, mapFlags, mapTypes } from "@kpng/backend-ebpf/bpf/bpf-map.ts";
import { loadProgram } from "@kpng/backend-ebpf/bpf/program.ts";
import { bpfOffThread, makeAttribute } from "@kpng/backend-ebpf/bpf/system-call.ts";
import { FamilyTables } from "@kpng/backend-ebpf/datapath/family-tables.ts";
import { EbpfMaps, GracePeriods } from "@kpng/backend-ebpf/datapath/maps.ts";
import { readRoutes, runBytes, sizes } from "@kpng/backend-ebpf/layout/layout.ts";
import { readSlots } from "@kpng/backend-ebpf/tables/frontends.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import { add, call, copy, finish, load, set, setMap, skipIf, store } from "../laboratory/bpf.ts";
import { RacePlan } from "./race-plan.ts";

/** State of places that were given up while a program could read them. */
export interface HeldReader {
  /** The program still ran when the rest was looked at. */
  readonly isRunning: boolean;
  /** No grace period had passed, for `GracePeriods`. */
  readonly isWaiting: boolean;
  /** The endpoints of the replaced set, and the slot of the deleted frontend, were as before. */
  readonly isRunKept: boolean;
  readonly isSlotKept: boolean;
  /** Both were used for others after the program had ended. */
  readonly isRunReused: boolean;
  readonly isSlotReused: boolean;
}

const [folder = ""] = process.argv.slice(2);
const { mapSizes } = readEbpfSettings({ maxFrontends: 64, maxEndpoints: 256 }, "");

// Element 0: whether the program runs, and whether it is to end.
const flags = BpfMap.create({
  ...{ name: "flags", type: mapTypes.array, keyBytes: 4, valueBytes: 8, maxEntries: 1, flags: mapFlags.mappable },
});
const iterator = ["bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"] as const;
/** Passes the address of an iterator on the stack. */
const iteratorAt = (offset: number): readonly Buffer[] => [copy(1, 10), add(1, offset)];
const code = [
  ...[set(1, 0), store(10, -4, 1), copy(2, 10), add(2, -4), ...setMap(1), call(1), skipIf(0, 0, 31)],
  ...[copy(6, 0), set(1, 1), store(6, 0, 1)],
  // 100 times 8 000 000 rounds at most, some seconds.
  ...[...iteratorAt(-16), set(2, 0), set(3, 100), call(0)],
  ...[...iteratorAt(-16), call(0), skipIf(0, 0, 16)],
  ...[...iteratorAt(-24), set(2, 0), set(3, 8_000_000), call(0)],
  ...[...iteratorAt(-24), call(0), skipIf(0, 0, 2), load(1, 6, 4), skipIf(1, 0, -6)],
  ...[...iteratorAt(-24), call(0), load(1, 6, 4), skipIf(1, 0, -20)],
  ...[...iteratorAt(-16), call(0), ...finish(0)],
];
const [begin, next, end] = iterator;
const calls = [begin, next, begin, next, end, end];
const ids = functionIds(iterator);
for (const each of code) {
  if (each.readUInt8(0) !== 0x85 || each.readInt32LE(4) !== 0) continue;
  // A call of a function of the kernel (BPF_PSEUDO_KFUNC_CALL) by the id of its type.
  each.writeUInt8((each.readUInt8(1) & 15) | (2 << 4), 1);
  each.writeInt32LE(ids.get(calls.shift() ?? "") ?? 0, 4);
}
const reader = loadProgram(
  { code: Buffer.concat(code), references: [{ instruction: 4, symbol: "flags" }] },
  { name: "reader", type: 3, attachType: 0 },
  new Map([["flags", flags.descriptor]]),
);

/** Returns the ids of functions in the kernel's description of its types. Source: include/uapi/linux/btf.h. */
function functionIds(names: readonly string[]): ReadonlyMap<string, number> {
  const bytes = readFileSync("/sys/kernel/btf/vmlinux");
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  const [, header = 0, types = 0, length = 0, strings = 0] = words;
  const wanted = new Map(
    names.map((name) => [bytes.indexOf(`\0${name}\0`, header + strings, "latin1") + 1 - header - strings, name]),
  );
  // Words that follow the three of each type, by kind: a fixed number, and a number for each member.
  const fixed: Readonly<Record<number, number>> = { 1: 1, 3: 3, 14: 1, 17: 1 };
  const perMember: Readonly<Record<number, number>> = { 4: 3, 5: 3, 6: 2, 13: 2, 15: 3, 19: 3 };
  const found = new Map<string, number>();
  let id = 0;
  for (let at = (header + types) >> 2; at < (header + types + length) >> 2; ) {
    id++;
    const [name = 0, info = 0] = [words[at], words[at + 1]];
    const kind = (info >>> 24) & 31;
    const known = kind === 12 ? wanted.get(name) : undefined;
    if (known !== undefined) found.set(known, id);
    at += 3 + (fixed[kind] ?? 0) + (perMember[kind] ?? 0) * (info & 0xffff);
  }
  return found;
}

/** Runs the program once (BPF_PROG_TEST_RUN), on another thread. Resolves when it has ended. */
function startReader(): Promise<boolean> {
  flags.memory.fill(0);
  const packet = Buffer.alloc(64);
  return bpfOffThread(10, makeAttribute(80, [0, reader.descriptor], [8, packet.length], [16, packet], [32, 1]));
}

const maps = EbpfMaps.open(join(folder, "kpng-reader"), mapSizes);
const grace = new GracePeriods();
const tables = new FamilyTables("v4", maps, grace, mapSizes);
const plan = new RacePlan();
const nothing = (): void => undefined;
const isSame = (now: Buffer, before: Buffer): boolean => now.equals(before);

async function hold(): Promise<HeldReader> {
  plan.clear();
  plan.put(1, [1, 2, 3]);
  plan.put(2, [4]);
  await tables.syncAll(plan, nothing);
  await grace.pass();
  const slots = [...readSlots("v4", maps.contents()).values()];
  const [changed = 0, deleted = 0] = slots.sort((a, b) => a - b);
  const [route] = readRoutes(maps.get("slots").memory, changed);
  const runNow = runBytes(maps.get("endpoints").memory, route?.run ?? 0) ?? Buffer.alloc(0);
  const slotAt = deleted * sizes.slot;
  const slotNow = maps.get("slots").memory.subarray(slotAt, slotAt + sizes.slot);
  const [runBefore, slotBefore] = [Buffer.from(runNow), Buffer.from(slotNow)];

  let isRunning = true;
  const ended = startReader().then(() => {
    isRunning = false;
  });
  while (flags.memory.readUInt32LE(0) === 0) await nextTurn();
  plan.put(1, [5, 6, 7]);
  plan.delete(2);
  tables.sync(plan, ["race/1", "race/2"], nothing);
  let isWaiting = true;
  const passed = grace.pass().then(() => {
    isWaiting = false;
  });
  /** More Services, some of which would take the places that were given up. */
  const addOthers = async (first: number): Promise<void> => {
    for (let number = first; number < first + 10; number++) {
      plan.put(number, [number, number + 1, number + 2]);
      tables.sync(plan, [`race/${number}`], nothing);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  await addOthers(10);
  const kept = { isRunKept: isSame(runNow, runBefore), isSlotKept: isSame(slotNow, slotBefore) };
  const during = { ...kept, isWaiting, isRunning };
  flags.memory.writeUInt32LE(1, 4);
  await ended;
  await passed;
  await addOthers(30);
  return { ...during, isRunReused: !isSame(runNow, runBefore), isSlotReused: !isSame(slotNow, slotBefore) };
}

let result = await hold();
// On a machine that was busy for seconds, the program ended by itself.
for (let attempt = 0; !result.isRunning && attempt < 5; attempt++) result = await hold();
process.stdout.write(JSON.stringify(result));
