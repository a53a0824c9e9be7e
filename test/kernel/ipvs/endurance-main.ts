import { killRepeatedly } from "../kill-points.ts";
import { enduranceChecks, killOptions } from "./endurance-checks.ts";
import { GuestResults } from "./guest-results.ts";
import { installedObjects } from "./installed-objects.ts";

// Disturbs the whole program kpng-ipvs inside the guest.

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
process.exit(0);
