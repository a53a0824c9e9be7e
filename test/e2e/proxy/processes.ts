import type { Cluster } from "../cluster/cluster.ts";
import type { Backend } from "./images.ts";

type Node = Cluster["nodes"][number];

/** A part of kpng, and how its process on a node is found: by a text of its command line. */
export function patternOf(part: "watcher" | "backend", backend: Backend): string {
  // The brackets keep the pattern from finding the command that looks for it.
  return part === "watcher" ? "[k]ube to-api" : `[k]png-${backend}`;
}

/** Sends a signal to processes of a node whose command lines contain a pattern. Errors: there are none. */
export async function signalOn(node: Node, pattern: string, signal: "STOP" | "KILL"): Promise<void> {
  await runOn(node, ["pkill", `-${signal}`, "--full", pattern]);
}

/** Runs a command on a node and returns its output. Errors: an exit status other than 0. */
export async function runOn(node: Node, command: readonly string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await node.run(command);
  if (exitCode !== 0) throw new Error(`${command.join(" ")} on ${node.name}: exit status ${exitCode}: ${stderr}`);
  return stdout;
}
