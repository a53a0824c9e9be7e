import type { State } from "../../scenario/manifest.ts";
import { scenarios, settingsKey } from "../../scenario/scenarios.ts";
import { updates } from "../../scenario/updates.ts";
import { checkPackets } from "../check-packets.ts";
import { NodeFirewall } from "../laboratory/node-firewall.ts";
import { serveSctp, whyNoSctp } from "../laboratory/sctp.ts";
import { buildTwoNodes, targetPorts } from "../laboratory/two-nodes.ts";
import { checkUpdate, type UpdatedBackend } from "../updates.ts";
import { guestChecks } from "./guest-checks.ts";
import { GuestResults } from "./guest-results.ts";
import { NodeUnderTest } from "./node-under-test.ts";

// Runs kpng-ipvs inside the guest.

const results = new GuestResults(process.argv);
const world = await buildTwoNodes();
if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
const node = await NodeUnderTest.start(world);
const firewall = new NodeFirewall();
let settings: string | undefined;
let applied: State = { services: [], slices: [] };

for (const [name, check] of Object.entries(guestChecks)) await results.report(name, () => check(world, node));

for (const scenario of scenarios) {
  await results.report(scenario.name, async () => {
    await firewall.put(world, scenario.firewall);
    const kind = settings === settingsKey(scenario) ? "apply" : "start";
    await node.ask({ kind, settings: scenario.settings ?? {}, state: scenario.state });
    settings = settingsKey(scenario);
    // A health check needs the program's server.
    return await checkPackets(world, { ...scenario, healthChecks: [] }, "ipvs");
  });
}
const backend: UpdatedBackend = {
  proxy: "ipvs",
  apply: async (state) => {
    applied = state;
    await node.ask({ kind: "apply", state });
  },
  restart: async () => {
    await node.ask({ kind: "start", settings: {}, state: applied });
  },
  loseRules: async () => {
    for (const table of ["mangle", "nat", "filter"]) {
      await world.laboratory.run("n1", ["iptables", "-t", table, "-F"]);
      await world.laboratory.run("n1", ["ip6tables", "-t", table, "-F"]);
    }
  },
};
for (const update of updates) {
  await results.report(update.name, async () => {
    await firewall.put(world, undefined);
    await node.ask({ kind: "start", settings: {}, state: update.before.state });
    applied = update.before.state;
    return await checkUpdate(world, backend, update);
  });
}
await world.close();
process.exit(0);
