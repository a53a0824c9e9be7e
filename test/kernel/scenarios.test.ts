import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checkRules } from "../conformance/check-rules.ts";
import type { Scenario } from "../scenario/scenario.ts";
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

      /**
       * Fails with all that went wrong. What packets did the tracer must find in the rules too: that is what makes
       * test/conformance worth something.
       */
      async function judge(wrong: readonly string[], scenario: Scenario): Promise<void> {
        const rules = await world.rules();
        const traced = checkRules(rules, scenario).map((line) => `tracer: ${line}`);
        if (wrong.length + traced.length === 0) return;
        const named = `${rules.v4}${rules.v6}`.split("\n").filter((line) => line.includes("default/web"));
        expect.fail([...wrong, ...traced, ...named, backend.log()].join("\n"));
      }

      // One process serves all scenarios with the same settings: each is also a test of the way from the one before.
      for (const scenario of scenarios) {
        const { [name]: difference } = scenario.knownWrong ?? {};
        test.skipIf(difference !== undefined)(`${scenario.name}${difference ?? ""}`, async () => {
          if (settings === settingsKey(scenario)) await backend.apply(scenario.state);
          else await backend.start(scenario.settings ?? {}, scenario.state);
          settings = settingsKey(scenario);
          await judge(await checkPackets(world, scenario), scenario);
        });
      }

      for (const update of updates) {
        test(`${update.name}, with packets under way`, async () => {
          if (settings !== settingsKey({})) await backend.start({}, update.before.state);
          settings = settingsKey({});
          await judge(await checkUpdate(world, backend, update), update.after);
        });
      }
    });
  }
});
