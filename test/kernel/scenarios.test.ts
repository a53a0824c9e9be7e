import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { scenarios, settingsKey } from "../scenario/scenarios.ts";
import { updates } from "../scenario/updates.ts";
import { backendsUnderTest, type RunningBackend } from "./backends-under-test.ts";
import { checkPackets } from "./check-packets.ts";
import { describePackets } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";
import { checkUpdate } from "./updates.ts";

describePackets("scenarios, with packets", () => {
  for (const { name, whyNot, start } of backendsUnderTest) {
    describe(name, () => {
      if (whyNot !== undefined) {
        test.skipIf(process.env.CI !== "true")(`can run (skipped: ${whyNot})`, () => expect.fail(whyNot));
        return;
      }
      let world: TwoNodes;
      let backend: RunningBackend;
      let settings: string | undefined;

      beforeAll(async () => {
        world = await buildTwoNodes();
        backend = await start(world);
      });
      afterAll(async () => {
        await backend?.close();
        await world?.close();
      });

      // One process serves all scenarios with the same settings: each is also a test of the way from the one before.
      for (const scenario of scenarios) {
        const { [name]: difference } = scenario.knownWrong ?? {};
        test.skipIf(difference !== undefined)(`${scenario.name}${difference ?? ""}`, async () => {
          if (settings === settingsKey(scenario)) await backend.apply(scenario.state);
          else await backend.start(scenario.settings ?? {}, scenario.state);
          settings = settingsKey(scenario);
          const wrong = await checkPackets(world, scenario);
          if (wrong.length > 0) expect.fail([...wrong, await world.rules(), backend.log()].join("\n"));
        });
      }

      for (const update of updates) {
        test(`${update.name}, with packets under way`, async () => {
          if (settings !== settingsKey({})) await backend.start({}, update.before.state);
          settings = settingsKey({});
          const wrong = await checkUpdate(world, backend, update);
          if (wrong.length > 0) expect.fail([...wrong, await world.rules(), backend.log()].join("\n"));
        });
      }
    });
  }
});
