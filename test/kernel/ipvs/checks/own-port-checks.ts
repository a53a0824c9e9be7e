import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { Answer } from "@kpng/laboratory/agent/request.ts";
import { type ServiceOptions, web } from "../../../scenario/build.ts";
import type { State } from "../../../scenario/manifest.ts";
import { outside, pod } from "../../../scenario/packet.ts";
import { hosts } from "../../../scenario/places.ts";
import type { TwoNodes } from "../../laboratory/two-nodes.ts";
import { ToolGate } from "../tool-gate.ts";
import { both, type Checks, options } from "./check.ts";

/** Port of a program of the node, which listens at all its addresses. */
const ownPort = 8444;

/** Returns the state in which the Service also has the port of the node's program. */
function withPort(external: ServiceOptions["external"]): State {
  return web({ ...options, ports: [...options.ports, { port: ownPort }], external }, ["b", "c"]);
}

let own: Promise<AgentClient> | undefined;

/** Starts the node's program, once. An agent of the network listens at the addresses of its host alone. */
async function listen({ laboratory }: TwoNodes): Promise<void> {
  own ??= AgentClient.start(laboratory, "n1", [ownPort], ["::"]);
  await own;
}

function isOwn(answer: Answer): boolean {
  return answer.kind === "answer" && answer.name === "n1";
}

/**
 * Whether a virtual server takes new connections to the port of an address: that of the address, or one with a firewall
 * mark that was not there before.
 */
function servesNew(servers: string, before: string, address: string): boolean {
  const place = address.includes(":") ? `[${address}]` : address;
  const isOfMark = (line: string): boolean => line.startsWith("-a -f ") && !before.includes(line);
  return servers
    .split("\n")
    .some((line) => (line.includes(` ${place}:${ownPort} -r `) || isOfMark(line)) && line.includes("-w 1"));
}

/** Checks that clients do not reach the node's own ports through service addresses. */
export const ownPortChecks: Checks = {
  "the node's own ports cannot be reached through service addresses": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    await listen(world);
    const wrong: string[] = [];
    for (const [sender, name] of [
      [outside, "outside"],
      [pod("a"), "pod a"],
    ] as const) {
      for (const [address, expected] of [
        [hosts.n1.v4, "answer"],
        ["10.96.0.11", "refused"],
        ["198.51.100.10", "refused"],
        ["fd00:10:96::11", "refused"],
      ] as const) {
        const target = { protocol: "tcp", address, port: ownPort, timeoutMs: 30_000 } as const;
        const answer = await world.agentOf(sender).askOnce(target);
        if (answer.kind !== expected) wrong.push(`${name} → ${address} port ${ownPort}: ${JSON.stringify(answer)}`);
      }
    }
    return wrong;
  },

  "a port that is added to a service address, or removed, does not lead to the node's own port in between": async (
    world,
    node,
  ) => {
    await listen(world);
    const wrong: string[] = [];
    let stops = 0;
    const listServers = () => world.laboratory.run("n1", ["ipvsadm", "-S", "-n"]);
    const clients = [
      ["outside", outside, "198.51.100.10"],
      ["outside", outside, "2001:db8:100::10"],
      ["pod a", pod("a"), "198.51.100.10"],
      ["pod a", pod("a"), "10.96.0.11"],
    ] as const;
    for (const external of ["Cluster", "Local"] as const) {
      await node.ask({ kind: "start", settings: {}, state: web({ ...options, external }, ["b", "c"]) });
      const before = await listServers();
      const gate = new ToolGate(node);
      /** Applies a state; the clients ask before each run of a tool. */
      const apply = (state: State): Promise<void> =>
        gate.during(node.ask({ kind: "apply", state }), async (tool) => {
          stops++;
          const servers = await listServers();
          for (const [name, sender, address] of clients) {
            // Its endpoints would answer, and then drain for two minutes.
            if (servesNew(servers, before, address)) continue;
            const target = { protocol: "tcp", address, port: ownPort, timeoutMs: 2_000 } as const;
            const answer = await world.agentOf(sender).askOnce(target);
            const said = `${external}, before ${tool}: ${name} → ${address}`;
            if (isOwn(answer)) wrong.push(`${said} reaches the node's own port`);
          }
        });
      await gate.close();
      await apply(withPort(external));
      await gate.open();
      // The endpoints have no connections, so the virtual servers go in the second sync.
      await node.ask({ kind: "apply", state: web({ ...options, external }, ["b", "c"]) });
      await gate.close();
      await apply(web({ ...options, external }, ["b", "c"]));
      await gate.open();
      const { output } = await node.ask({ kind: "shell", command: `ipvsadm -S -n; ipset save` });
      const left = output.split("\n").filter((line) => line.includes(String(ownPort)));
      wrong.push(...left.map((line) => `left: ${line}`));
    }
    return stops > 8 ? wrong : [...wrong, `only ${stops} runs of tools`];
  },
};
