import { spawnSync } from "node:child_process";
import { parseArgs } from "node:util";
import { type AddressSet, families } from "@kpng/model/address.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";
import { RecentAddresses } from "../node-addresses/recent-addresses.ts";

// Measures how long the node's own addresses take to read while an interface has those of Services: `npm run bench --
// local-addresses`. It adds addresses to its network namespace, so start it in a new one: unshare --net node
// services/backend-kit/src/testing/bench-addresses.ts --addresses 10000

const { values } = parseArgs({
  options: {
    /** Of both families together. */
    addresses: { type: "string", default: "10000" },
    /** Syncs of one Service, one in 100 ms. */
    syncs: { type: "string", default: "100" },
  },
});
const link = "kube-ipvs0";

function ip(lines: readonly string[]): void {
  const { status, stderr } = spawnSync("ip", ["-batch", "-"], { input: lines.join("\n"), encoding: "utf8" });
  if (status !== 0) throw new Error(`ip -batch: ${stderr}`);
}

// Not every kernel has "dummy".
ip([`link add ${link} type veth peer name other`, `link set ${link} up`, "link set other up", "link set lo up"]);
ip(
  Array.from({ length: Number(values.addresses) / 2 }, (_, at) => [
    `address add 10.96.${at >> 8}.${at & 255}/32 dev ${link} scope host`,
    `address add fd00:10:96::${at.toString(16)}/128 dev ${link} nodad preferred_lft 0`,
  ]).flat(),
);

/** CPU time of this process for one call of `work`, in milliseconds. */
async function cpuMs(count: number, work: () => unknown): Promise<string> {
  const before = process.cpuUsage();
  for (let at = 0; at < count; at++) await work();
  const { user, system } = process.cpuUsage(before);
  return `${((user + system) / count / 1_000).toFixed(2)} ms`;
}

const syncs = Number(values.syncs);
/** CPU time of a sync that needs the addresses of both families. */
const ofSync = (read: () => Partial<AddressSet>): Promise<string> =>
  cpuMs(syncs, async () => {
    for (const family of families) read()[family];
    await new Promise((resolve) => setTimeout(resolve, 100));
  });

for (const family of families) {
  process.stdout.write(`one reading of ${family}: ${await cpuMs(30, () => readLocalAddresses()[family])}\n`);
}
const [idle, each, recently] = [
  await ofSync(() => ({})),
  await ofSync(readLocalAddresses),
  await ofSync(new RecentAddresses().read),
];
process.stdout.write(`a sync each 100 ms: ${each} with a reading, ${recently} as backends do it, ${idle} without\n`);
