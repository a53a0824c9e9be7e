// Counts the connections of Services that lose frontends, in full and in partial syncs: `node count-moves.ts
// BPF-FOLDER`, in a namespace of the laboratory. Counters are written to the slots, as programs would do it. Prints
// `CountedMoves` as JSON; `ebpf-races.test.ts` knows what is right.
import { join } from "node:path";
import { FamilyTables } from "@kpng/backend-ebpf/datapath/family-tables.ts";
import { EbpfMaps, GracePeriods } from "@kpng/backend-ebpf/datapath/maps.ts";
import { readEbpfSettings } from "@kpng/backend-ebpf/ebpf-options.ts";
import { sizes, slotPlaces } from "@kpng/backend-ebpf/layout/map-layouts.ts";
import { readSlots } from "@kpng/backend-ebpf/tables/installed-frontends.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import { RacePlan } from "./race-plan.ts";

/** Connections of Services at some moment. *Shape:* `{ "race/1": 5 }`. */
type Counts = Readonly<Record<string, number>>;

/** Results of `FamilyTables.connections`, for two Services. */
export interface CountedMoves {
  /** Each different result while a full sync without a change ran. */
  readonly during: readonly Counts[];
  /** At the end of a sync, when a grace period has not passed, and after it. */
  readonly partial: readonly Counts[];
  readonly full: readonly Counts[];
  /** After a full sync in which a frontend goes to a Service that comes before its former one. */
  readonly taken: Counts;
  /** After the start of another process; and of one that finds a frontend with another Service. */
  readonly restarted: Counts;
  readonly changed: Counts;
}

const [folder = ""] = process.argv.slice(2);
const { mapSizes } = readEbpfSettings({ maxFrontends: 1_024, maxEndpoints: 2_048, maxAffinityClients: 64 }, "");
const maps = EbpfMaps.open(join(folder, "kpng-counts"), mapSizes);
const grace = new GracePeriods();
let tables = new FamilyTables("v4", maps, grace, mapSizes);
const plan = new RacePlan();
const nothing = (): void => undefined;
const { memory: slots } = maps.get("slots");

const counts = (): Counts => Object.fromEntries(tables.connections);

function countOneEach(): void {
  for (const slot of readSlots("v4", maps.contents()).values()) {
    const at = slot * sizes.slot + slotPlaces.connections;
    slots.writeBigUInt64LE(slots.readBigUInt64LE(at) + 1n, at);
  }
}

/** Service 1 has two frontends; more than a hundred come before it, so that a full sync takes several turns. */
function putAll(): void {
  plan.clear();
  for (let number = 0; number < 150; number++) plan.put(1_000 + number, [1]);
  plan.put(1, [1]);
  plan.addFrontend(1, 20);
}

const ofTwo = (all: Counts): Counts => ({ "race/1": all["race/1"] ?? 0, "race/1000": all["race/1000"] ?? 0 });

putAll();
await tables.syncAll(plan, nothing);
countOneEach();
const during = new Set<string>();
let isRunning = true;
const synced = tables.syncAll(plan, nothing).then(() => {
  isRunning = false;
});
while (isRunning) {
  during.add(JSON.stringify(ofTwo(counts())));
  await nextTurn();
}
await synced;

plan.put(1, [1]);
tables.sync(plan, ["race/1"], nothing);
const partial = [ofTwo(counts())];
await grace.pass();
partial.push(ofTwo(counts()));

putAll();
tables.sync(plan, ["race/1"], nothing);
await grace.pass();
countOneEach();
plan.put(1, [1]);
await tables.syncAll(plan, nothing);
const full = [ofTwo(counts())];
await grace.pass();
full.push(ofTwo(counts()));

putAll();
await tables.syncAll(plan, nothing);
countOneEach();
plan.put(1, [1]);
plan.addFrontend(1_000, 20);
await tables.syncAll(plan, nothing);
await grace.pass();
const taken = ofTwo(counts());

countOneEach();
tables = new FamilyTables("v4", maps, grace, mapSizes);
await tables.syncAll(plan, nothing);
const restarted = ofTwo(counts());
putAll();
tables = new FamilyTables("v4", maps, grace, mapSizes);
await tables.syncAll(plan, nothing);
const changed = ofTwo(counts());
const result: CountedMoves = {
  during: [...during].map((text) => JSON.parse(text)),
  ...{ partial, full, taken, restarted, changed },
};
process.stdout.write(JSON.stringify(result));
