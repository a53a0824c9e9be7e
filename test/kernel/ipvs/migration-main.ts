import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { buildTwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { kpngIptables, kpngIpvs } from "../backend/kpng-proxy.ts";
import { killPoints, killRepeatedly } from "../kill-points.ts";
import { GuestResults } from "./guest-results.ts";
import { migrationChecks } from "./migration-checks.ts";
import { MovingNode, movingState, webWith } from "./moving-node.ts";

// A node moves to kpng-ipvs and back, inside the guest, by the steps of docs/guides/migrate-from-kube-proxy.md; and
// kpng-ipvs is restarted and killed.

const results = new GuestResults(process.argv);

/** Returns the commands that the section "IPVS" of the guide says to run, in their order. */
function guideCommands(): readonly string[] {
  const guide = fileURLToPath(new URL("../../../docs/guides/migrate-from-kube-proxy.md", import.meta.url));
  const [, section = ""] = readFileSync(guide, "utf8").split("\n## IPVS\n");
  const table = (section.split("\n## ")[0] ?? "").matchAll(/\| run `(kpng-ipvs [^`]*)`/g);
  return [...table].map(([, command = ""]) => command);
}

const ofKpngIpvs = /KPNGIPVS/;
const serviceInterface = /kube-ipvs0/;

const [cleanupKubeProxy = "", cleanup = ""] = guideCommands();

await results.report(migrationChecks.kpngIptables, async () => {
  const world = await buildTwoNodes();
  await using _ = { [Symbol.asyncDispose]: () => world.close() };
  const theirs = await kpngIptables(world, { name: "other", firstMarkerPort: 20_000 });
  const ours = await kpngIpvs(world, { firstMarkerPort: 30_000 });
  await theirs.start({}, movingState);
  const node = await MovingNode.begin(world);
  await ours.start({}, movingState);
  await node.after("kpng-ipvs has started beside kpng-iptables", ours.profile);
  await theirs.stop();
  await theirs.cleanUp();
  await node.after("kpng-iptables --cleanup has run", ours.profile);
  await node.expectNone("kpng-iptables --cleanup has run", /KPNG-/);
  await node.expectOurServers("kpng-iptables --cleanup has run");

  // IPVS carries the connections that it has until its cleanup.
  await node.during(async () => {
    await theirs.start({}, movingState);
    await ours.stop();
    await node.after("kpng-iptables has started, and kpng-ipvs has stopped", ours.profile);
  });
  await ours.cleanUp();
  await node.after("kpng-ipvs --cleanup has run", theirs.profile);
  await node.expectNone("kpng-ipvs --cleanup has run", ofKpngIpvs);
  await node.expectNone("kpng-ipvs --cleanup has run", serviceInterface);
  await node.expectNoServers("kpng-ipvs --cleanup has run");
  const wrong = await node.end();
  await theirs.close();
  return wrong;
});

await results.report(migrationChecks.takenOver, async () => {
  const world = await buildTwoNodes();
  await using _ = { [Symbol.asyncDispose]: () => world.close() };
  const ours = await kpngIpvs(world);
  await ours.start({}, movingState);
  const node = await MovingNode.begin(world);
  // A part of what kube-proxy leaves, and a chain of another program.
  const leaveKubeProxy = () =>
    node.type(`ipset create KUBE-CLUSTER-IP hash:ip,port; ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
    for tool in iptables ip6tables; do $tool -t nat -N KUBE-SERVICES; $tool -t nat -I PREROUTING -j KUBE-SERVICES; done
    iptables -t nat -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT`);
  await leaveKubeProxy();
  await node.type("iptables -N KUBE-ROUTER-INPUT; ipvsadm -A -t 10.96.0.11:8888 -s rr");
  await node.type(cleanupKubeProxy);
  await node.after("kube-proxy has been removed", ours.profile);
  await node.expectNone("kube-proxy has been removed", /KUBE-(?!ROUTER-INPUT)/);
  await node.expectOurServers("kube-proxy has been removed");
  await node.type("iptables -X KUBE-ROUTER-INPUT");
  const wrong = await node.end();

  await ours.stop();
  const before = await node.servers();
  await leaveKubeProxy();
  await node.type(cleanup);
  await node.expectNone("kpng-ipvs --cleanup has run", ofKpngIpvs);
  const addresses = await node.type("ip -o address show dev kube-ipvs0");
  const [after, kept] = [await node.servers(), before.filter((id) => !id.startsWith("-f "))];
  await ours.close();
  const hasAddresses = addresses.includes(" 10.96.0.11/32 ") && addresses.includes(" fd00:10:96::11/128 ");
  return [
    ...wrong,
    ...(hasAddresses ? [] : [`addresses that kube-proxy owns now: ${addresses}`]),
    ...(after.join() === kept.join() ? [] : [`virtual servers were ${before}, are ${after}`]),
  ];
});

await results.report(migrationChecks.disturbed, async () => {
  const world = await buildTwoNodes();
  await using _ = { [Symbol.asyncDispose]: () => world.close() };
  const ours = await kpngIpvs(world);
  await ours.start({}, movingState);
  const node = await MovingNode.begin(world);
  await ours.apply(webWith("c"));
  await ours.restart("SIGTERM");
  await ours.apply(movingState);
  await ours.apply(webWith("b"));
  await ours.restartStates();
  await ours.apply(movingState);
  await node.after("endpoints were removed and added, and kpng-ipvs and its watcher restarted", ours.profile);
  const wrong = await node.end();
  await ours.close();
  return wrong;
});

await results.report(migrationChecks.kills, async () => {
  // Node ports need an address of the node.
  const link = "ip link add eth0 type dummy && ip address add 192.0.2.1/24 dev eth0 && ip link set eth0 up";
  const said = await killRepeatedly(["to-ipvs", "--ipvs-min-sync-period", "0s"], {
    points: killPoints(3),
    serviceCount: 20,
    prepare: (laboratory, name) => laboratory.run(name, ["sh", "-c", link]),
  });
  process.stdout.write(`${said}\n`);
  return [];
});
process.exit(0);
