import { spawnSync } from "node:child_process";
import { NftTable, type TableChange } from "../commit/nft-table.ts";
import { NftablesConnection } from "../netlink/nftables-connection.ts";
import { readInstalledState } from "../read/read-table.ts";
import { ChangingPlan } from "./plans.ts";

// Stores records with a table in the network namespace of this process, damages the table, and prints what each step
// did.

const id = { family: "v4", name: "kpng" } as const;
const connection = new NftablesConnection();
const make = () => new NftTable({ family: "v4", table: "kpng", masqueradeBit: 14, connection, maxClients: 1_000 });
const nft = (command: string): void => {
  const { stderr, status } = spawnSync("nft", [command], { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
};
let announced = 0;
const committing = (): void => {
  announced += 1;
};
/** The changes of a call, and whether it announced a commit. */
const outcome = async (work: () => Promise<TableChange>) => {
  announced = 0;
  const { elements, chains } = await work();
  return { sets: elements.map(({ set, kind }) => `${kind} ${set}`), chains, isAnnounced: announced > 0 };
};
const state = async (): Promise<string> => {
  const found = await readInstalledState(connection, id);
  return found.kind === "marked" ? found.record : found.kind;
};

const seen: Record<string, unknown> = { before: await state() };
const plan = new ChangingPlan("v4");
plan.set("ns/web-1", 3);
plan.record = "boot=1,plans=a";
let table = make();
await table.syncAll(plan, committing);
seen.installed = await state();
plan.record = "boot=1,plans=b";
seen.sync = await outcome(() => table.sync(plan, new Set(), committing));
seen.synced = await state();

const { PATH } = process.env;
// The program nft is not needed if nothing differs.
process.env.PATH = "/nonexistent";
seen.again = await outcome(() => table.syncAll(plan, committing));
process.env.PATH = PATH;

// Only the rules that do not depend on Services are repaired, by a program that knows nothing of the table.
nft("flush chain ip kpng services; flush chain ip kpng pick_3; flush map ip kpng slots");
table = make();
const older = new ChangingPlan("v4");
older.record = "boot=1,plans=old";
seen.frame = await outcome(() => table.repairFrame(older, committing));
seen.frameAgain = await outcome(() => table.repairFrame(older, committing));
seen.afterFrame = await state();
seen.full = await outcome(() => table.syncAll(plan, committing));

// A release without records, and a set that another program has deleted.
nft("delete set ip kpng record; flush chain ip kpng masquerade_marked; delete set ip kpng hairpin");
seen.unmarked = await state();
seen.repair = await outcome(() => table.repair(plan, committing));
seen.repaired = await state();
connection.close();
process.stdout.write(JSON.stringify(seen));
