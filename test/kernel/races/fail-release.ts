// Shows what happens if places of deleted entries cannot be released after a grace period: `node fail-release.ts
// BPF-FOLDER`, in a namespace of the laboratory. The map of source ranges is frozen, so that the kernel refuses to
// delete. Prints `FailedRelease` as JSON; `ebpf-races.test.ts` knows what is right.
import { join } from "node:path";
import { makeAttribute, requireBpf } from "@kpng/backend-ebpf/bpf/system-call.ts";
import { FamilyTables } from "@kpng/backend-ebpf/datapath/family-tables.ts";
import { EbpfMaps, GracePeriods } from "@kpng/backend-ebpf/datapath/maps.ts";
import { readEbpfSettings } from "@kpng/backend-ebpf/ebpf-options.ts";
import { RacePlan } from "./race-plan.ts";

/** Results of syncs after a failed release: "done", or the reason of the failure. */
export interface FailedRelease {
  readonly partial: string;
  readonly full: string;
}

const [folder = ""] = process.argv.slice(2);
const freeze = 22;
const { mapSizes } = readEbpfSettings({ maxFrontends: 64, maxEndpoints: 256, maxAffinityClients: 64 }, "");
const maps = EbpfMaps.open(join(folder, "kpng-release"), mapSizes);
const grace = new GracePeriods();
const tables = new FamilyTables("v4", maps, grace, mapSizes);
const plan = new RacePlan();
const nothing = (): void => undefined;

async function resultOf(sync: () => unknown): Promise<string> {
  try {
    await sync();
    return "done";
  } catch (error) {
    return String(error);
  }
}

plan.put(1, [1]);
plan.limit(1, ["198.51.100.0/24"]);
await tables.syncAll(plan, nothing);
requireBpf("map ranges cannot be frozen", freeze, makeAttribute(4, [0, maps.get("ranges").descriptor]));
plan.put(1, [1]);
tables.sync(plan, ["race/1"], nothing);
await grace.pass();
const partial = await resultOf(() => tables.sync(plan, ["race/1"], nothing));
const result: FailedRelease = { partial, full: await resultOf(() => tables.syncAll(plan, nothing)) };
process.stdout.write(JSON.stringify(result));
