import type { State } from "../../scenario/manifest.ts";
import type { Settings } from "../../scenario/scenario.ts";
import { buildTwoNodes } from "../laboratory/two-nodes.ts";
import { flushTables } from "../rules.ts";
import { guestChecks } from "./guest-checks.ts";
import { GuestResults } from "./guest-results.ts";
import { NodeUnderTest } from "./node-under-test.ts";
import { reportScenarios } from "./report-scenarios.ts";

// Runs the checks of kpng-ipvs, the scenarios and the updates inside the guest.

const results = new GuestResults(process.argv);
const world = await buildTwoNodes();
const node = await NodeUnderTest.start(world);
for (const [name, check] of Object.entries(guestChecks)) await results.report(name, () => check(world, node));

let present: { readonly settings: Settings; readonly state: State } = {
  settings: {},
  state: { services: [], slices: [] },
};
const start = async (settings: Settings, state: State): Promise<void> => {
  present = { settings, state };
  await node.ask({ kind: "start", settings, state });
};
await reportScenarios(results, world, {
  proxy: "ipvs",
  answersHealthChecks: false,
  isStartedForUpdates: false,
  start,
  apply: async (state) => {
    present = { ...present, state };
    await node.ask({ kind: "apply", state });
  },
  restart: () => start(present.settings, present.state),
  // Without any rule that uses connection tracking, the kernel would stop translating back: table filter has some.
  loseRules: () => flushTables(world, ["mangle", "nat"]),
});
await world.close();
process.exit(0);
