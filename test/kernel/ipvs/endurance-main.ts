import { publicAddress, web } from "../../scenario/build.ts";
import { kpngIpvs } from "../backend/kpng-proxy.ts";
import { killRepeatedly } from "../kill-points.ts";
import { buildTwoNodes } from "../laboratory/two-nodes.ts";
import { connectionCount, enduranceChecks, isLongRun, killOptions } from "./endurance-checks.ts";
import { GuestResults } from "./guest-results.ts";
import { Connections, Transfers } from "./guest-traffic.ts";
import { installedObjects } from "./installed-objects.ts";

// Disturbs the whole program kpng-ipvs inside the guest: by kills at random moments, and by changes during connections.

const results = new GuestResults(process.argv);

await results.report(enduranceChecks.kills, async () => {
  const sink = ["to-ipvs", "--ipvs-min-sync-period", "0s"];
  // Node ports need an address of the node.
  const link = "ip link add eth0 type dummy && ip address add 192.0.2.1/24 dev eth0 && ip link set eth0 up";
  const said = await killRepeatedly(
    {
      sink,
      prepare: (laboratory, name) => laboratory.run(name, ["sh", "-c", link]),
      rulesOf: installedObjects,
    },
    killOptions,
  );
  process.stdout.write(`${said}\n`);
  return [];
});

await results.report(enduranceChecks.traffic, async () => {
  const world = await buildTwoNodes();
  await using _ = { [Symbol.asyncDispose]: () => world.close() };
  const options = { ports: [{ port: 80, nodePort: 30_080 }], loadBalancerIPs: [publicAddress(10)] };
  const both = web(options, ["b", "c"]);
  const backend = await kpngIpvs(world);
  await backend.start({}, both);
  const transfers = await Transfers.start(world, both);
  // In a long run they take what is left of the CPU, in a short one the events are to end soon.
  const connections = new Connections(world, both, isLongRun ? 0 : 20);

  const events = Object.entries({
    "b removed": () => backend.apply(web(options, ["c"])),
    "restarted while b drains": () => backend.restart("SIGTERM"),
    "b added": () => backend.apply(both),
    ...(isLongRun
      ? {
          "c removed": () => backend.apply(web(options, ["b"])),
          "killed while c drains": () => backend.restart("SIGKILL"),
          "c added": () => backend.apply(both),
        }
      : {}),
    "full resync": () => backend.restartWatcher(),
  });
  const done: string[] = [];
  for (const [at, [name, event]] of events.entries()) {
    await connections.reached((connectionCount * (at + 1)) / (events.length + 1));
    const before = connections.count;
    await event();
    done.push(`${name} ${before} to ${connections.count}`);
  }
  await connections.reached(connectionCount);
  const { answered, failures, elapsedMs } = await connections.end();
  const lost = await transfers.finish();
  await backend.close();
  const perSecond = Math.round((1_000 * answered) / elapsedMs);
  process.stdout.write(`${answered} short connections, ${perSecond} per second; ${done.join(", ")}\n`);
  return [...lost, ...failures.map((line) => `short connection: ${line}`)];
});
process.exit(0);
