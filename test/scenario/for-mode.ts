import type { Packet } from "./packet.ts";
import type { ProxyMode, Scenario, Update } from "./scenario.ts";

/** Returns a scenario with the results of one mode of kube-proxy. */
export function forMode(scenario: Scenario, mode: ProxyMode): Scenario {
  if (mode === "iptables") return scenario;
  return {
    ...scenario,
    healthChecks: scenario.healthChecks?.filter(({ modes }) => modes?.includes(mode) !== false),
    packets: scenario.packets.flatMap((packet): readonly Packet[] => {
      const except = packet.except?.[mode];
      if (except === undefined) return [packet];
      const { from, to, port, protocol, family } = packet;
      return [{ from, to, port, protocol, family, ...except }];
    }),
  };
}

export function updateForMode(update: Update, mode: ProxyMode): Update {
  return { ...update, before: forMode(update.before, mode), after: forMode(update.after, mode) };
}
