import type { RuleChange } from "@kpng/backend-kit/proxy/rule-set.ts";
import { NftTable } from "../commit/nft-table.ts";
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
const stages = { committing: () => undefined };
const countOf = ({ fields }: RuleChange): number => Number(fields.puts) + Number(fields.deletes);
const first = await table.sync(plan, "all", stages);
const keys = Array.from({ length: services }, (_, at) => `ns/web-${at}` as const);
for (const key of keys) plan.set(key, 6);
const all = await table
  .sync(plan, new Set(keys), stages)
  .then(countOf, (error: unknown) => (error instanceof Error ? error.message : String(error)));
process.stdout.write(
  JSON.stringify({
    limit: connection.maxTransactionBytes,
    first: countOf(first),
    all,
    again: countOf(await open().sync(plan, "all", stages)),
  }),
);
connection.close();
