import { spawnSync } from "node:child_process";
import { readLocalAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { type Family, noAddresses } from "@kpng/model/address.ts";
import type { Frontend, Route } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { type EntryFrontend, type EntryState, localPortRange } from "../entry/entry.ts";
import { openEntries, RedirectEntry } from "../entry/redirect-entry.ts";

// Changes the entries in the network namespace of this process, and prints what each step found. The kernel test of the
// entries runs it as a process in a namespace of its own.

const family: Family = process.argv[2] === "v6" ? "v6" : "v4";
const ip = family === "v4" ? "ip" : "ip6";
const own = family === "v4" ? "192.0.2.1" : "2001:db8::1";
// nft prints the IPv6 address with dots.
const serviceIP = family === "v4" ? "10.96.0.1" : "::a60:1";
const run = (command: string): string => {
  const { stdout, stderr, status } = spawnSync("sh", ["-c", command], { encoding: "utf8" });
  if (status !== 0) throw new Error(`${command}: ${stderr}`);
  return stdout;
};
// Without nodad, an IPv6 address is tentative at first, and not yet among the local addresses.
run(`ip link set lo up && ip address add ${own}/${family === "v4" ? "32 dev lo" : "128 dev lo nodad"}`);

const route: Route = { kind: "balance", set: "cluster", isMasqueraded: true };
const routes = { pod: route, node: route, outside: route };
const at = (kind: Frontend["kind"], protocol: "TCP" | "UDP", port: number): EntryFrontend => {
  const address = kind === "nodePort" ? undefined : serviceIP;
  const frontend: Frontend = { kind, address, protocol, port, sources: undefined, routes };
  return { id: `${protocol} ${address ?? "*"} ${port}`, name: "ns/web", isFirst: true, frontend };
};
const open = (port: number): EntryState => ({ kind: "open", at: { address: own, port } });
const node = () => ({ plan: nodePlan({ family, nodeAddress: own }), localAddresses: readLocalAddresses()[family] });

const redirect = new RedirectEntry({ family, table: "kpng-test", ports: localPortRange });
redirect.useNode(node());
const web = at("clusterIP", "TCP", 80);
await redirect.publish([
  { at: web, state: open(20_001) },
  { at: at("clusterIP", "UDP", 53), state: open(20_002) },
  { at: at("nodePort", "TCP", 30_080), state: open(20_003) },
  { at: at("clusterIP", "TCP", 81), state: { kind: "refuse" } },
  { at: at("nodePort", "UDP", 30_081), state: { kind: "drop" } },
]);
const steps: Record<string, unknown> = { place: redirect.placeOf(web)?.address, installed: await redirect.repair() };
steps.captured = [
  redirect.captures("TCP", { address: serviceIP, port: 80 }),
  redirect.captures("TCP", { address: own, port: 30_080 }),
];
steps.notCaptured = [
  redirect.captures("UDP", { address: serviceIP, port: 80 }),
  redirect.captures("TCP", { address: serviceIP, port: 81 }),
  redirect.captures("TCP", { address: serviceIP, port: 30_080 }),
];
await redirect.publish([{ at: web, state: { kind: "drop" } }]);
steps.changed = await redirect.repair();
run(`nft flush map ${ip} kpng-test frontends`);
steps.lostElements = await redirect.repair();
run(`nft flush chain ${ip} kpng-test nat_out`);
steps.lostRules = await redirect.repair();
run(`nft delete table ${ip} kpng-test`);
steps.lostTable = (await redirect.repair()).length;
steps.repaired = await redirect.repair();
run(`nft flush map ${ip} kpng-test nodeports`);
const gone = { at: at("nodePort", "TCP", 30_080), state: { kind: "none" } } as const;
steps.refusedDelete = await redirect.publish([gone]).then(
  () => "nothing failed",
  () => "ENTRY_FAILED",
);
await redirect.publish([gone]);
steps.afterwards = await redirect.repair();
await redirect.close();
steps.left = run("nft list tables").trim();

const opened = await openEntries({
  mapAddresses: noAddresses,
  tableName: "kpng-test",
  print: () => undefined,
});
steps.chosen = [...new Set(opened.map((entry) => entry.constructor.name))];
steps.chosenLeft = run("nft list tables").trim();
process.stdout.write(`${JSON.stringify(steps)}\n`);
