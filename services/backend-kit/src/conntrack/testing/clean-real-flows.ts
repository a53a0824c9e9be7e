// Program that `clean-real-flows.test.ts` runs in a network namespace of its own: opens real UDP flows through DNAT
// rules, deletes the stale ones, and prints the conntrack table before and after as JSON. The rules stay unchanged, so
// only the deletion is tested.
import { execFileSync } from "node:child_process";
import { createSocket, type Socket } from "node:dgram";
import { families } from "@kpng/model/address.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { StaleFlowCleaner } from "../stale-flow-cleaner.ts";
import { createConntrackTool } from "../udp-flows.ts";

const signal = AbortSignal.timeout(20_000);
const sh = (script: string): string => execFileSync("sh", ["-ec", script], { encoding: "utf8" });

const rules = `table inet t {
  chain out {
    type nat hook output priority -100
    ip daddr 10.96.0.10 udp dport 53 numgen inc mod 2 0 dnat ip to 10.1.0.1:5353
    ip daddr 10.96.0.10 udp dport 53 dnat ip to 10.1.0.2:5353
    ip daddr 10.96.0.11 udp dport 53 dnat ip to 10.1.0.1:5353
    ip daddr 10.0.0.1 udp dport 30053 dnat ip to 10.1.0.2:5353
    ip daddr 10.0.0.1 udp dport 30099 dnat ip to 10.1.0.2:5353
    ip6 daddr fd00:96::10 udp dport 53 dnat ip6 to [fd00:1::2]:5353
  }
}`;
sh(`PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
for a in 10.0.0.1 10.1.0.1 10.1.0.2; do ip addr add $a/32 dev lo; done
ip -6 addr add fd00:1::2/128 dev lo nodad
ip route add 10.96.0.0/16 dev lo
ip -6 route add fd00:96::/64 dev lo
nft -f - <<'END'
${rules}
END`);

async function send(destination: string, number: number): Promise<void> {
  const socket: Socket = createSocket(destination.includes(":") ? "udp6" : "udp4");
  await new Promise<void>((resolve, reject) =>
    socket.send("x", number, destination, (error) => (error ? reject(error) : resolve())),
  );
  socket.close();
}

async function table(): Promise<readonly string[]> {
  const flows: string[] = [];
  for (const family of ["v4", "v6"] as const) {
    await createConntrackTool().visitUdp(
      family,
      (flow) =>
        flows.push(`${flow.destination} ${flow.destinationPort} -> ${flow.replySource} ${flow.replySourcePort}`),
      signal,
    );
  }
  return flows.sort();
}

for (let client = 0; client < 4; client++) await send("10.96.0.10", 53);
for (const gone of ["10.96.0.11", "10.96.0.99"]) await send(gone, 53);
await send("fd00:96::10", 53);
for (const nodePort of [30_053, 30_099]) await send("10.0.0.1", nodePort);
const before = await table();

const udp = { protocol: "UDP", targetPort: 5353 } as const;
const parts = { log: createLog("error"), metrics: new Registry(), health: new Health(), errorDelayMs: 1_000 };
const cleaner = new StaleFlowCleaner(parts);
const isNodePortAddress = (address: string): boolean => address === "10.0.0.1";
const dns = { ips: ["10.96.0.10", "fd00:96::10"], ports: [port(53, { ...udp, nodePort: 30_053 })] };
const deleted = service("a/deleted", { ips: ["10.96.0.11"], ports: [port(53, { ...udp, nodePort: 30_099 })] });
const [left, gone] = [endpoint("10.1.0.1"), [endpoint("10.1.0.2"), endpoint("fd00:1::2")]];
const clean = (...services: readonly ServiceView[]) =>
  cleaner.clean({ view: view(services), changed: "all", isNodePortAddress, families }, signal);
// Then 10.1.0.2 and fd00:1::2 are gone, so IPv6 has none left, and so is the Service a/deleted.
const earlier = await clean(service("a/dns", { ...dns, endpoints: [left, ...gone] }), {
  ...deleted,
  endpoints: service("a/deleted", { endpoints: [left, ...gone] }).endpoints,
});
if (earlier.kind !== "cleaned" || earlier.deletedCount > 0) throw new Error(JSON.stringify(earlier));
const result = await clean(service("a/dns", { ...dns, endpoints: [left] }));
process.stdout.write(JSON.stringify({ before, result, after: await table() }));
