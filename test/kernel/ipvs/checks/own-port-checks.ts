import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { web } from "@kpng/laboratory/scenario/build.ts";
import { outside, pod } from "@kpng/laboratory/scenario/packet.ts";
import { hosts } from "@kpng/laboratory/scenario/places.ts";
import { toolFolder } from "../node-under-test.ts";
import { type Checks, expectTrue, options } from "./check.ts";

/** Port of a program of the node, which listens at all its addresses. */
const ownPort = 8445;

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
    await AgentClient.start(world.laboratory, "n1", [ownPort], ["::"]);
    const ask = (sender: (typeof clients)[number][0], address: string) =>
      world.agentOf(sender).askOnce({ protocol: "tcp", address, port: ownPort, timeoutMs: 2_000 });
    const itself = await ask(outside, hosts.n1.v4);
    const wrong = [...expectTrue(itself.kind === "answer", `the program of the node: ${itself.kind}`)];
    let refusals = 0;
    for (const external of ["Cluster", "Local"] as const) {
      const without = web({ ...options, external }, ["b", "c"]);
      const ports = [...options.ports, { port: ownPort }];
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
