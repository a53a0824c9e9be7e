import { join } from "node:path";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { ping, waitForSocket } from "@kpng/laboratory/laboratory.ts";
import { buildNetwork, network } from "@kpng/laboratory/one-node.ts";
import { families, moveAddresses, removePod, swapPods } from "./changes.ts";
import { elapsed, firstAnswer } from "./observe.ts";
import type { Print } from "./print.ts";
import { copyManifests, type Running, startCallout, startWatcher, withOutput } from "./processes.ts";

/** Ports that the pods listen on. Neither the Service nor the rules name a port. */
const ports = [53, 80, 9000] as const;

const asked = [
  { protocol: "tcp", ports: [80, 9000] },
  { protocol: "udp", ports: [53, 9000] },
] as const;

const timeoutMs = 1_000;

const { client: outside, node, pods } = network;

/**
 * Runs every step of the demo in an open laboratory, with real processes and real packets.
 *
 * Errors: a step that did not go as expected, with the output of the processes. They end with the laboratory.
 */
export async function runWalkthrough(laboratory: Laboratory, print: Print): Promise<void> {
  const running: Running[] = [];
  try {
    const client = await showNetwork(laboratory, print);
    const manifests = join(laboratory.folder, "manifests");
    await copyManifests(manifests);
    await startProcesses(laboratory, print, manifests, running);
    await showPackets(laboratory, client, print);
    await removePod(client, print, manifests);
    await swapPods(client, print, manifests);
    await moveAddresses(client, print, manifests);
    await showRules(laboratory, print);
  } catch (error) {
    throw withOutput(error, running);
  }
}

async function showNetwork(laboratory: Laboratory, print: Print): Promise<AgentClient> {
  await buildNetwork(laboratory, network);
  await Promise.all(pods.map(({ name, v4, v6 }) => AgentClient.start(laboratory, name, ports, [v4, v6])));
  const links = pods.map(({ name, v4 }) => `${name} ${v4}`).join(", ");
  print.step("network", `client ${outside.v4} ── node ${node.name} ── ${links}`);
  print.detail("the same over IPv6, all in namespaces: this machine's network is not touched");
  return AgentClient.start(laboratory, outside.name);
}

/** Starts watcher and backend. They share only a unix socket; the watcher has no network at all. */
async function startProcesses(
  laboratory: Laboratory,
  print: Print,
  manifests: string,
  running: Running[],
): Promise<void> {
  const shorten = ({ shown }: Running) => shown.replaceAll(`${laboratory.folder}/`, "");
  const socket = join(laboratory.folder, "proxy.sock");
  await laboratory.add("watcher");
  const watcher = startWatcher((command) => laboratory.start("watcher", command), manifests, socket);
  running.push(watcher);
  await waitForSocket(watcher.child, socket);
  const externals = families.map(({ external }) => external).join(" and ");
  print.step("watch", `manifests in a folder: a Service with the external IPs ${externals}`);
  print.detail(shorten(watcher));
  const callout = startCallout((command) => laboratory.start(node.name, command), node.name, socket);
  running.push(callout);
  print.step(
    "callout",
    `on node ${node.name}: the backend receives the node's view and runs a program for each change`,
  );
  print.detail(shorten(callout));
}

async function showPackets(laboratory: Laboratory, client: AgentClient, print: Print): Promise<void> {
  const start = performance.now();
  const firsts = [];
  for (const { external } of families) firsts.push(await firstAnswer(client, external, pods));
  const ready = firsts.map((first) => elapsed(start, first)).at(-1);
  print.step("packets", `from the client; both addresses answered ${ready} after the backend started`);
  const seen = new Set<string>();
  for (const { external } of families) {
    for (const { protocol, ports: some } of asked) {
      const names: string[] = [];
      for (const port of some) names.push(...(await askTimes(client, protocol, external, port, 8)));
      for (const name of names) seen.add(name);
      print.result(`${external}  ${protocol} ports ${some.join(" and ")}: ${count(names)}`);
    }
    const pong = await ping(laboratory, outside.name, external);
    if (pong === false) throw new Error(`${external} does not answer ping`);
    print.result(`${external}  ping ${pong === undefined ? "is not installed here" : "is answered"}`);
  }
  const silent = pods.filter(({ name }) => !seen.has(name));
  if (silent.length > 0) throw new Error(`no packet reached ${silent.map(({ name }) => name).join(", ")}`);
  print.detail("no port is configured anywhere; pod-c gets no packet because it runs on node n2");
}

/** Asks several times at once and returns the names that answered. Errors: a missing answer. */
async function askTimes(
  client: AgentClient,
  protocol: "tcp" | "udp",
  address: string,
  port: number,
  times: number,
): Promise<readonly string[]> {
  const target = { protocol, address, port, timeoutMs };
  const answers = await Promise.all(Array.from({ length: times }, () => client.askOnce(target)));
  return answers.map((answer) => {
    if (answer.kind === "answer") return answer.name;
    throw new Error(`${protocol} ${address} port ${port}: ${answer.kind === "error" ? answer.code : answer.kind}`);
  });
}

function count(names: readonly string[]): string {
  return pods.map(({ name }) => `${name} answers ${names.filter((other) => other === name).length}`).join(", ");
}

async function showRules(laboratory: Laboratory, print: Print): Promise<void> {
  print.step("rules", `all rules of the example on node ${node.name}; outdated ones are removed`);
  for (const tool of ["iptables-save", "ip6tables-save"]) {
    const saved = await laboratory.run(node.name, [tool, "-t", "nat"]);
    for (const line of saved.split("\n").filter((text) => /^-A .*KPNG-ALLIP/.test(text))) print.detail(line);
  }
}
