// Program that `count-real-traffic.test.ts` runs in a network namespace of its own: opens TCP connections to a Service
// through a DNAT rule, and prints as JSON whether the metrics of its traffic are as expected.
import { execFileSync } from "node:child_process";
import { connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { port, service, view } from "@kpng/model/testing/views.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { ServiceTraffic } from "../service-traffic.ts";

const rules = `table ip t {
  chain out {
    type nat hook output priority -100
    ip daddr 10.96.0.1 tcp dport 80 dnat to 10.1.0.1:8080
  }
}`;
execFileSync("sh", [
  "-ec",
  `PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
ip addr add 10.1.0.1/32 dev lo
ip route add 10.96.0.0/16 dev lo
echo 1 > /proc/sys/net/netfilter/nf_conntrack_acct
nft -f - <<'END'
${rules}
END`,
]);

const registry = new Registry();
const traffic = new ServiceTraffic(createLog("error"), registry);
traffic.setView(view([service("a/web", { ips: ["10.96.0.1"], ports: [port(80)] })]));
const stop = new AbortController();
const running = traffic.run(stop.signal);

const server = createServer((socket) => socket.end("x".repeat(1_000)).resume());
await new Promise<void>((resolve) => server.listen(8_080, resolve));

async function value(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
  const values = (await registry.getSingleMetric(name)?.get())?.values ?? [];
  const isWanted = (of: object): boolean =>
    Object.entries(labels).every(([key, text]) => Reflect.get(of, key) === text);
  return values.filter((one) => isWanted(one.labels)).reduce((sum, one) => sum + one.value, 0);
}

let opened = 0;

async function open(): Promise<void> {
  opened += 1;
  const socket = connect(80, "10.96.0.1");
  await new Promise((resolve) => socket.on("data", () => undefined).on("close", resolve));
}

const untilMs = Date.now() + 60_000;
async function until(step: () => Promise<void> | void, isMet: () => Promise<boolean>): Promise<void> {
  while (!(await isMet())) {
    if (Date.now() > untilMs) throw new Error("not within 60 s");
    await step();
    await sleep(50);
  }
}

// The first connections may be older than the program that reports them, and the last of them may be reported later.
await until(open, async () => (await value("kpng_service_connections_total")) > 0);
const before = await value("kpng_service_connections_total");
for (let count = 0; count < 10; count += 1) await open();
await until(
  () => undefined,
  async () => (await value("kpng_service_connections_total")) >= before + 10,
);
const counted = await value("kpng_service_connections_total");
execFileSync("sh", ["-c", "PATH=$PATH:/usr/sbin:/sbin conntrack -D -p tcp 2>&1 >/dev/null || true"]);
const sent = { direction: "sent" };
await until(
  () => undefined,
  async () => (await value("kpng_service_bytes_total", sent)) >= 11_000,
);
const received = { direction: "received" };
process.stdout.write(
  JSON.stringify({
    hasAll: counted >= before + 10,
    hasNoOther: counted <= opened,
    hasBytes: (await value("kpng_service_bytes_total", received)) > 0,
    hasPackets: (await value("kpng_service_packets_total", sent)) > 10,
  }),
);
stop.abort();
await running;
server.close();
process.exit();
