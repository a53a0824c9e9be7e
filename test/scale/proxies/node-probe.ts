import { setTimeout as sleep } from "node:timers/promises";
import { NftablesConnection } from "../../../services/nftables/src/netlink/nftables-connection.ts";
import { monotonicMs } from "../proc.ts";

/**
 * Runs in the network namespace of a node, and prints a line of JSON for each change of the beacon.
 *
 * The *beacon* is the only Service with client affinity. Therefore the map `sticky_addresses` has the address of its
 * endpoint alone, and reading it costs the kernel nothing, however many Services there are. The benchmark counts in
 * the address.
 */
const table = { family: "v4", name: "kpng" } as const;
const nft = new NftablesConnection();

async function readBeacon(): Promise<number | undefined> {
  const found: number[] = [];
  try {
    for (const value of (await nft.readElements(table, "sticky_addresses")).values()) {
      const [, high = 0, middle = 0, low = 0] = Buffer.from(value, "latin1");
      found.push(high * 65_536 + middle * 256 + low);
    }
  } catch {
    // There is no table yet.
    return undefined;
  }
  return found.length === 0 ? undefined : Math.max(...found);
}

let last: number | undefined;
for (;;) {
  const beacon = await readBeacon();
  if (beacon !== undefined && beacon !== last) {
    last = beacon;
    process.stdout.write(`${JSON.stringify({ beacon, atMs: monotonicMs() })}\n`);
  }
  await sleep(1);
}
