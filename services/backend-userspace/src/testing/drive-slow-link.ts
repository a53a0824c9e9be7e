import { execSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { readFileSync } from "node:fs";
import { until } from "../../../../test/cluster/until.ts";
import { key, RunningService } from "./running-service.ts";

// Serves a UDP Service whose endpoint is behind a link that takes nothing at first. A client sends 1.5 MB; then the link
// opens, and the program prints how many bytes leave. The kernel test of `UdpListener` runs it in a namespace of its own.

// Datagrams wait for the endpoint's link-layer address, and the kernel's own queue for them has no limit.
execSync(`set -e
  ip link add slow0 type veth peer name slow1
  ip address add 192.0.2.1/24 dev slow0
  ip link set slow1 up
  ip link set slow0 up
  echo 1000000000 >/proc/sys/net/ipv4/neigh/slow0/unres_qlen_bytes
  echo 1000 >/proc/sys/net/ipv4/neigh/slow0/mcast_solicit
`);
const sentBytes = (): number => Number(/slow0:(?:\s+\d+){8}\s+(\d+)/.exec(readFileSync("/proc/net/dev", "utf8"))?.[1]);

const service = await RunningService.open({ protocol: "UDP", endpoints: [{ address: "192.0.2.2", port: 9 }] });
const client = createSocket("udp4");
const datagram = Buffer.alloc(1_000);
const traffic = service.runtime.table.of(key);
while (traffic.bytesFromClients < 1_500_000) {
  // So few that the listener's socket loses none.
  for (let count = 0; count < 50; count++) client.send(datagram, service.port, "127.0.0.1");
  const before = traffic.bytesFromClients;
  await until("the datagrams were received", () => traffic.bytesFromClients >= before + 40 * datagram.length);
}
const beforeBytes = sentBytes();
execSync("ip neighbour replace 192.0.2.2 lladdr 02:00:00:00:00:02 nud permanent dev slow0");
let last = -1;
await until("nothing more is sent", () => {
  const isSame = last === sentBytes();
  last = sentBytes();
  return isSame;
});
process.stdout.write(`${last - beforeBytes}\n`);
client.close();
await service.ruleSet.close();
