import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import type { EndpointManifest } from "../scenario/manifest.ts";
import type { Scenario } from "../scenario/scenario.ts";
import { scenarios as allScenarios, settingsKey } from "../scenario/scenarios.ts";
import { updates as allUpdates } from "../scenario/updates.ts";
import type { BackendUnderTest, RunningBackend } from "./backends.ts";
import { checkPackets } from "./check-packets.ts";
import { checkUpdate } from "./check-updates.ts";
import { whyNoPackets } from "./describe-packets.ts";
import { serveSctp, whyNoSctp } from "./laboratory/sctp.ts";
import { buildTwoNodes, NodeFirewall, type TwoNodes, targetPorts } from "./laboratory/two-nodes.ts";

/**
 * Tests a backend with every scenario and every update, with real packets. One process serves all scenarios with the
 * same settings, so each scenario also tests the change from the one before.
 */
export function describeBackend(tested: BackendUnderTest): void {
  const { name, whyNot, variant, start, rules, scenarios = allScenarios, updates = allUpdates } = tested;
  describeWhere(`scenarios, with packets: ${name}`, whyNoPackets ?? whyNot, () => {
    let world: TwoNodes;
    let backend: RunningBackend;
    const firewall = new NodeFirewall();
    let settings: string | undefined;
    let failures = 0;

    beforeAll(async () => {
      world = await buildTwoNodes(variant);
      if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
      backend = await start(world);
    });
    afterAll(async () => {
      await backend?.close();
      await world?.close();
    });

    /**
     * Applies the state of a scenario. After three failures in a row it fails at once, because every attempt waits for
     * a timeout.
     */
    async function bringTo(scenario: Scenario): Promise<void> {
      if (failures >= 3) expect.fail("not tried: the backend failed to apply the states of three scenarios in a row");
      failures += 1;
      await firewall.put(world, scenario.firewall);
      if (settings === settingsKey(scenario)) await backend.apply(scenario.state);
      else await backend.start(scenario.settings ?? {}, scenario.state);
      settings = settingsKey(scenario);
      failures = 0;
    }

    /**
     * Fails if packets, or the tracer where there is one, have unexpected results. The tracer must agree with the
     * packets, because test/peer relies on it alone.
     */
    async function judge(wrong: readonly string[], scenario: Scenario): Promise<void> {
      const traced = (await rules?.trace?.(world, scenario, backend.proxy)) ?? [];
      if (wrong.length + traced.length === 0) return;
      const shown = rules === undefined ? await nftablesRules(world) : await rules.show(world);
      const { services, slices } = scenario.state;
      const view = slices.map(
        ({ metadata, endpoints }) => `${metadata.name}: ${endpoints.map(describeEndpoint).join(", ")}`,
      );
      const names = [
        ...["default/web", ...services.flatMap(({ spec }) => spec.clusterIPs)],
        ...slices.flatMap(({ endpoints }) => endpoints.flatMap(({ addresses }) => addresses)),
      ];
      const named = shown.split("\n").filter((line) => names.some((name) => line.includes(name)));
      const packets = [...wrong, ...traced.map((line) => `tracer: ${line}`)];
      const log = backend.log().split("\n").slice(-10);
      expect.fail([...firstOf(packets), "state:", ...view, "rules:", ...firstOf(named), "log:", ...log].join("\n"));
    }

    for (const scenario of scenarios) {
      const isSctp = scenario.packets.some(({ protocol }) => protocol === "sctp");
      const whyNot = isSctp ? whyNoSctp() : undefined;
      const note = whyNot === undefined ? "" : ` (its rules alone, SCTP packets skipped: ${whyNot})`;
      // A verdict may come up to 30 s later.
      test(`${scenario.name}${note}`, { timeout: 60_000 }, async () => {
        if (whyNot !== undefined && process.env.CI === "true") expect.fail(whyNot);
        await bringTo(scenario);
        await judge(await checkPackets(world, scenario, backend.proxy), scenario);
      });
    }

    for (const update of updates) {
      test(`${update.name}, during traffic`, async () => {
        await bringTo(update.before);
        await judge(await checkUpdate(world, backend, update), update.after);
      });
    }
  });
}

async function nftablesRules(world: TwoNodes): Promise<string> {
  return (await world.laboratory.tryRun("n1", ["nft", "list", "ruleset"])).stdout;
}

/** *Shape:* `10.1.1.12 on n1`, `10.1.1.12 on n1 not ready, serving, terminating`. */
function describeEndpoint({ addresses, nodeName, conditions }: EndpointManifest): string {
  const { ready, serving, terminating } = conditions;
  const is = [serving ? "serving" : "not serving", ...(terminating ? ["terminating"] : [])];
  return `${addresses} on ${nodeName}${ready ? "" : ` not ready, ${is.join(", ")}`}`;
}

/** The first 20 lines: what a developer reads of a failure. */
function firstOf(lines: readonly string[]): readonly string[] {
  return lines.length <= 20 ? lines : [...lines.slice(0, 20), `… and ${lines.length - 20} more`];
}
