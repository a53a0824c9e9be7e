import type { State } from "../../scenario/manifest.ts";
import type { Settings } from "../../scenario/scenario.ts";
import { scenarios, settingsKey } from "../../scenario/scenarios.ts";
import { updates } from "../../scenario/updates.ts";
import { checkPackets } from "../check-packets.ts";
import { checkUpdate } from "../check-updates.ts";
import { serveSctp, whyNoSctp } from "../laboratory/sctp.ts";
import { buildTwoNodes, NodeFirewall, targetPorts } from "../laboratory/two-nodes.ts";
import { flushTables } from "../rules.ts";
import { guestChecks } from "./guest-checks.ts";
import { GuestResults } from "./guest-results.ts";
import { NodeUnderTest } from "./node-under-test.ts";

// Runs the checks of kpng-ipvs, the scenarios and the updates inside the guest.

const results = new GuestResults(process.argv);
const world = await buildTwoNodes();
const node = await NodeUnderTest.start(world);
for (const [name, check] of Object.entries(guestChecks)) await results.report(name, () => check(world, node));
// Checks shorten the timeouts. With one second, a flow that a busy machine holds up would lose its connection.
await node.ask({ kind: "shell", command: "ipvsadm --set 900 120 300" });

let present: { readonly settings: Settings; readonly state: State } = {
  settings: {},
  state: { services: [], slices: [] },
};
const start = async (settings: Settings, state: State): Promise<void> => {
  present = { settings, state };
  await node.ask({ kind: "start", settings, state });
};
const backend = {
  proxy: "ipvs" as const,
  start,
  apply: async (state: State): Promise<void> => {
    present = { ...present, state };
    await node.ask({ kind: "apply", state });
  },
  restart: () => start(present.settings, present.state),
  // Without any rule that uses connection tracking, the kernel would stop translating back: table filter has some.
  loseRules: () => flushTables(world, ["mangle", "nat"]),
};

if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
const firewall = new NodeFirewall();
let settings: string | undefined;
for (const scenario of scenarios) {
  await results.report(scenario.name, async () => {
    await firewall.put(world, scenario.firewall);
    if (settings === settingsKey(scenario)) await backend.apply(scenario.state);
    else await backend.start(scenario.settings ?? {}, scenario.state);
    settings = settingsKey(scenario);
    // The node under test has no server for health checks.
    return await checkPackets(world, { ...scenario, healthChecks: [] }, backend.proxy);
  });
}
for (const update of updates) {
  await results.report(update.name, async () => {
    await firewall.put(world, undefined);
    if (settings !== settingsKey(update.before)) await backend.start({}, update.before.state);
    settings = settingsKey(update.before);
    return await checkUpdate(world, backend, update);
  });
}
await world.close();
process.exit(0);
