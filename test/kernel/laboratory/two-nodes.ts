import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { Sender } from "../../scenario/packet.ts";
import { type Family, type HostName, hosts } from "../../scenario/places.ts";
import { type IptablesVariant, useLegacyTools } from "./legacy-tools.ts";
import { buildNetwork, pinAgents } from "./network.ts";

/** Ports that pods and nodes serve. */
export const targetPorts = [8080, 8443];

/** Network of the scenarios: namespaces, links, and an agent in each. `close` removes all of it. */
export interface TwoNodes {
  readonly laboratory: Laboratory;
  /** Returns the agent that sends for a sender. */
  agentOf(sender: Sender): AgentClient;
  /** Returns n1's rules in the format of iptables-save and ip6tables-save. */
  rules(): Promise<Readonly<Record<Family, string>>>;
  close(): Promise<void>;
}

/**
 * Builds the network, in one to two seconds on two cores. Errors: LaboratoryUnavailable if namespaces are not
 * available.
 */
export async function buildTwoNodes(variant: IptablesVariant = "nft"): Promise<TwoNodes> {
  const laboratory = await Laboratory.open();
  try {
    await buildNetwork(laboratory);
    if (variant === "legacy") await useLegacyTools(laboratory, "n1");
    const names = Object.keys(hosts) as HostName[];
    const serving = names.map((name) => AgentClient.start(laboratory, name, targetPorts, Object.values(hosts[name])));
    const agents = await Promise.all([
      ...serving,
      ...["client", "neighbour"].map((name) => AgentClient.start(laboratory, name, [], [])),
    ]);
    await pinAgents(agents);
    const byName = new Map(agents.map((agent) => [agent.name, agent]));
    return {
      laboratory,
      agentOf: (sender) => {
        const agent = byName.get(
          sender.kind === "outside" ? "client" : sender.kind === "neighbour" ? "neighbour" : sender.name,
        );
        if (agent === undefined) throw new Error("agent not found");
        return agent;
      },
      rules: async () => {
        const [v4, v6] = await Promise.all([
          laboratory.run("n1", ["iptables-save"]),
          laboratory.run("n1", ["ip6tables-save"]),
        ]);
        return { v4, v6 };
      },
      close: () => laboratory.close(),
    };
  } catch (error) {
    await laboratory.close();
    throw error;
  }
}
