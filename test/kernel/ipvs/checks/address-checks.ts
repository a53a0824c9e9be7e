import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { publicAddress, web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, loadBalancerIP, outside, pod } from "@kpng/laboratory/scenario/packet.ts";
import { hosts } from "@kpng/laboratory/scenario/places.ts";
import { toolFolder } from "../node-under-test.ts";
import { both, type Checks, expectTrue, options } from "./check.ts";

/** Port of a program of the node, which listens at all its addresses. */
const ownPort = 8444;

/** Addresses of the node and of Services: what answers at them, and those that are left out. */
export const addressChecks: Checks = {
  "the node's own ports cannot be reached through service addresses": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    // An agent of the network listens at the addresses of its host alone.
    await AgentClient.start(world.laboratory, "n1", [ownPort], ["::"]);
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

  "addresses and endpoints that the kernel refuses are left out, and everything else is served": async (_w, node) => {
    const externalIPs = [
      publicAddress(20),
      { v4: "239.1.1.1", v6: "ff05::1" },
      { v4: "203.0.113.5", v6: "2001:db8:100::21" },
    ];
    const { services, slices } = web({ ...options, externalIPs, number: 78 }, ["b", "c"]);
    const refused = { IPv4: "255.255.255.255", IPv6: "ff05::7" } as const;
    const state = {
      services,
      slices: slices.map((slice) => ({
        ...slice,
        endpoints: slice.endpoints.flatMap((one) => [one, { ...one, addresses: [refused[slice.addressType]] }]),
      })),
    };
    await node.ask({ kind: "start", settings: {}, state });
    const { output } = await node.ask({ kind: "shell", command: "ip -o address show dev kube-ipvs0; ipvsadm -S -n" });
    // Endpoints of the check before have drained.
    await node.ask({ kind: "apply", state });
    const { output: sets } = await node.ask({ kind: "shell", command: "ipset save | grep ADDRESSES" });
    const again = await node.ask({ kind: "repair" });
    const other = await node.ask({ kind: "apply", state: both });
    return [
      ...["198.51.100.20/32", "2001:db8:100::20/128", "-a -t 198.51.100.20:80 -r 10.1.2.13:8080"].flatMap((text) =>
        expectTrue(output.includes(text), `no ${text} in ${output}`),
      ),
      ...expectTrue(!/255\.255\.255\.255:|ff05::7|ff05::1\/128/.test(output), `not refused: ${output}`),
      ...expectTrue(sets.includes("2001:db8:100::20") && !sets.includes("ff05::1"), `recorded: ${sets}`),
      ...again.changes.map((change) => `the check changes ${change}`),
      ...expectTrue(other.changes.length > 0, "the next state changes nothing"),
    ];
  },

  "a connection to an address that is missing is served as soon as the address is back": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    // Addresses of the check before that drain are deleted now, while there is an interface.
    await node.ask({ kind: "apply", state: both });
    await node.ask({ kind: "shell", command: "ip link delete kube-ipvs0" });
    const agent = world.agentOf(outside);
    // Round robin gives two connections of a family to both endpoints.
    const opening = (["v4", "v4", "v6", "v6"] as const).map((family) => {
      const address = addressOf(both, loadBalancerIP("web"), family);
      return agent.openFlow({ protocol: "tcp", address, port: 80, answerMs: 30_000 });
    });
    await node.ask({ kind: "repair" });
    const flows = await Promise.all(opening);
    for (const flow of flows) await flow.close();
    return flows.flatMap(({ name }, at) => expectTrue(name !== undefined, `flow ${at}: no answer`));
  },
};

/** Port of a program of the node, which becomes that of a Service for a while. */
const slowPort = 8445;

const clients = [
  [outside, "198.51.100.10"],
  [outside, "2001:db8:100::10"],
  [pod("a"), "198.51.100.10"],
  [pod("a"), "10.96.0.11"],
] as const;

/** Tools that write to the kernel, and a pattern for the arguments with which they do. */
const tools = { ipvsadm: "*-R*", ipset: "*restore*", ip: "*-batch*" } as const;

/** Makes each tool wait before it writes, so that clients see the state between two of them. Returns a function that ends it. */
function slowDown({ laboratory }: TwoNodes): () => void {
  const folder = toolFolder(laboratory);
  mkdirSync(folder);
  for (const [name, pattern] of Object.entries(tools)) {
    const file = join(folder, name);
    const wait = `case "$*" in ${pattern}) sleep 1 ;; esac`;
    // The next one of this name on the PATH.
    writeFileSync(file, `#!/bin/sh\n${wait}\nPATH="\${PATH#${folder}:}" exec ${name} "$@"\n`);
    chmodSync(file, 0o755);
  }
  return () => rmSync(folder, { recursive: true });
}

/** Moments between two changes of the kernel, in which clients must not reach the node's own ports. */
export const ownPortChecks: Checks = {
  "a port that is added to a service address, or removed, does not lead to the node's own port in between": async (
    world,
    node,
  ) => {
    await AgentClient.start(world.laboratory, "n1", [slowPort], ["::"]);
    const ask = (sender: (typeof clients)[number][0], address: string) =>
      world.agentOf(sender).askOnce({ protocol: "tcp", address, port: slowPort, timeoutMs: 2_000 });
    const itself = await ask(outside, hosts.n1.v4);
    const wrong = [...expectTrue(itself.kind === "answer", `the program of the node: ${itself.kind}`)];
    let refusals = 0;
    for (const external of ["Cluster", "Local"] as const) {
      const without = web({ ...options, external }, ["b", "c"]);
      const ports = [...options.ports, { port: slowPort }];
      await node.ask({ kind: "start", settings: {}, state: without });
      const speedUp = slowDown(world);
      for (const state of [web({ ...options, ports, external }, ["b", "c"]), without]) {
        let isDone = false;
        const applied = node.ask({ kind: "apply", state }).finally(() => {
          isDone = true;
        });
        while (!isDone) {
          for (const [sender, address] of clients) {
            const answer = await ask(sender, address);
            if (answer.kind === "refused") refusals++;
            if (answer.kind !== "answer" || answer.name !== "n1") continue;
            wrong.push(`${external}: ${sender.kind} → ${address} reaches the node's own port`);
          }
        }
        await applied;
      }
      speedUp();
    }
    // A closed connection counts for two minutes; this ends it now.
    await node.ask({ kind: "shell", command: "ipvsadm --set 1 1 1" });
    return [...new Set(wrong), ...expectTrue(refusals > 8, `only ${refusals} connections were refused`)];
  },
};
