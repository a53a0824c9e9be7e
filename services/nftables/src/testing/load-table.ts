import { NftTable, type TableChange } from "../commit/nft-table.ts";
import { NftablesConnection } from "../netlink/nftables-connection.ts";
import { ChangingPlan } from "./plans.ts";

// Loads a table of many Services in the network namespace of this process, then changes all of them at once, and prints
// what happened. A test starts it where the socket buffer is limited: `load-table.ts SERVICES BUFFER_BYTES`.

const services = Number(process.argv[2]);
const connection = new NftablesConnection(undefined, Number(process.argv[3]));
const open = (): NftTable =>
  new NftTable({
    family: "v4",
    table: "kpng",
    masqueradeBit: 14,
    maxClients: 1_000,
    connection,
  });
const table = open();
const plan = new ChangingPlan("v4");
for (let at = 0; at < services; at++) plan.set(`ns/web-${at}`, 5);
const nothing = (): void => undefined;
const countOf = ({ elements }: TableChange): number => elements.reduce((sum, one) => sum + one.elements.length, 0);
const first = await table.syncAll(plan, nothing);
const keys = Array.from({ length: services }, (_, at) => `ns/web-${at}` as const);
for (const key of keys) plan.set(key, 6);
const all = await table
  .sync(plan, new Set(keys), nothing)
  .then(countOf, (error: unknown) => (error instanceof Error ? error.message : String(error)));
process.stdout.write(
  JSON.stringify({
    limit: connection.maxTransactionBytes,
    first: countOf(first),
    all,
    again: countOf(await open().syncAll(plan, nothing)),
  }),
);
connection.close();
