import { scenarios, settingsKey } from "../../scenario/scenarios.ts";
import { updates } from "../../scenario/updates.ts";
import type { Backend } from "../backends.ts";
import { checkPackets } from "../check-packets.ts";
import { checkUpdate } from "../check-updates.ts";
import { serveSctp, whyNoSctp } from "../laboratory/sctp.ts";
import { NodeFirewall, type TwoNodes, targetPorts } from "../laboratory/two-nodes.ts";
import type { GuestResults } from "./guest-results.ts";

/** A proxy whose scenarios run inside a guest. */
export interface GuestBackend extends Pick<Backend, "proxy" | "start" | "apply" | "restart" | "loseRules"> {
  /** Whether it answers health checks, which need the program's server. */
  readonly answersHealthChecks: boolean;
  /** Whether each update begins with a new process, because the last one remembers the update before. */
  readonly isStartedForUpdates: boolean;
}

/** Runs the wanted scenarios and updates. `guest-main.ts` calls it for kpng-ipvs, `oracle-main.ts` for kube-proxy. */
export async function reportScenarios(results: GuestResults, world: TwoNodes, backend: GuestBackend): Promise<void> {
  if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
  const firewall = new NodeFirewall();
  let settings: string | undefined;
  for (const scenario of scenarios) {
    await results.report(scenario.name, async () => {
      await firewall.put(world, scenario.firewall);
      if (settings === settingsKey(scenario)) await backend.apply(scenario.state);
      else await backend.start(scenario.settings ?? {}, scenario.state);
      settings = settingsKey(scenario);
      const { healthChecks, ...others } = scenario;
      return await checkPackets(world, backend.answersHealthChecks ? scenario : others, backend.proxy);
    });
  }
  for (const update of updates) {
    await results.report(update.name, async () => {
      await firewall.put(world, undefined);
      if (backend.isStartedForUpdates || settings !== settingsKey(update.before))
        await backend.start({}, update.before.state);
      settings = settingsKey(update.before);
      return await checkUpdate(world, backend, update);
    });
  }
}
