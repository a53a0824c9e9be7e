import { join } from "node:path";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { buildNetwork, network } from "@kpng/laboratory/one-node.ts";
import { waitForSocket } from "@kpng/laboratory/wait-for-socket.ts";
import { families, moveAddresses, removePod, swapPods } from "./changes.ts";
import { copyManifests } from "./manifests.ts";
import { elapsed, firstAnswer } from "./observe.ts";
import { type Client, ping, startClient, startPod } from "./packets.ts";
import type { Print } from "./print.ts";
import { type Running, startCallout, startWatcher } from "./processes.ts";
import type { Question } from "./question.ts";

/** Ports that the pods listen on. Neither the Service nor the rules name any: they are only for somebody to answer. */
const ports = [53, 80, 9000] as const;

const asked = [
  { protocol: "tcp", ports: [80, 9000] },
  { protocol: "udp", ports: [53, 9000] },
] as const;

/** How long one packet's answer may take, once there are rules. */
const timeoutMs = 1_000;

const { client: outside, node, pods } = network;

/**
 * Tells the whole story in an open laboratory, with real processes and real packets.
 *
 * Errors: what was expected, what came instead, and what the processes said. All that it starts ends with the laboratory.
 */
export async function tell(laboratory: Laboratory, print: Print): Promise<void> {
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
    const reason = error instanceof Error ? error.message : String(error);
    const said = running.map(({ shown, output }) => `${shown}\n${output()}`).join("\n");
    throw new Error(`${reason}\n${said}`.trim(), { cause: error });
  }
}

async function showNetwork(laboratory: Laboratory, print: Print): Promise<Client> {
  await buildNetwork(laboratory, network);
  await Promise.all(pods.map((pod) => startPod(laboratory, pod, ports)));
  const links = pods.map(({ name, v4 }) => `${name} ${v4}`).join(", ");
  print.step("network", `client ${outside.v4} ── node ${node.name} ── ${links}`);
  print.detail("the same over IPv6, all in namespaces: this machine's own network is not touched");
  return startClient(laboratory, outside);
}

/** Starts watcher and backend; they share nothing but a unix socket, and the watcher has no network at all. */
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
  print.step("watch", `manifests in a folder: a Service that has ${externals}`);
  print.detail(shorten(watcher));
  const callout = startCallout((command) => laboratory.start(node.name, command), node.name, socket);
  running.push(callout);
  print.step("callout", `on node ${node.name}: what concerns the node arrives as a stream, each change runs a program`);
  print.detail(shorten(callout));
}

async function showPackets(laboratory: Laboratory, client: Client, print: Print): Promise<void> {
  const start = performance.now();
  const firsts = [];
  for (const { external } of families) firsts.push(await firstAnswer(client, external, pods));
  const ready = firsts.map((first) => elapsed(start, first)).at(-1);
  print.step("packets", `from the client; the first ones were answered ${ready} after the start of the backend`);
  const seen = new Set<string>();
  for (const { external } of families) {
    for (const { protocol, ports: some } of asked) {
      const names: string[] = [];
      for (const port of some)
        names.push(...(await askTimes(client, { protocol, address: external, port, timeoutMs }, 8)));
      for (const name of names) seen.add(name);
      print.result(`${external}  ${protocol} ports ${some.join(" and ")}: ${count(names)}`);
    }
    const pong = await ping(laboratory, outside, external);
    if (pong === false) throw new Error(`${external} does not answer ping`);
    print.result(`${external}  ping ${pong === undefined ? "is not installed here" : "is answered"}`);
  }
  const silent = pods.filter(({ name }) => !seen.has(name));
  if (silent.length > 0) throw new Error(`no packet reached ${silent.map(({ name }) => name).join(", ")}`);
  print.detail("no port is configured anywhere; pod-c is not asked, because it runs on node n2");
}

/** Asks the same several times and returns the names of those who answered. Errors: if one is not answered. */
async function askTimes(client: Client, question: Question, times: number): Promise<readonly string[]> {
  const replies = await Promise.all(Array.from({ length: times }, () => client.ask(question)));
  return replies.map((reply) => {
    if (reply.kind === "answer") return reply.name;
    throw new Error(`${question.protocol} ${question.address} port ${question.port}: ${reply.reason}`);
  });
}

function count(names: readonly string[]): string {
  return pods.map(({ name }) => `${name} answers ${names.filter((other) => other === name).length}`).join(", ");
}

async function showRules(laboratory: Laboratory, print: Print): Promise<void> {
  print.step("rules", `in node ${node.name}, and nothing else: what is no longer wanted is gone`);
  for (const tool of ["iptables-save", "ip6tables-save"]) {
    const saved = await laboratory.run(node.name, [tool, "-t", "nat"]);
    for (const line of saved.split("\n").filter((text) => /^-A .*KPNG-ALLIP/.test(text))) print.detail(line);
  }
}
