import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { waitForSocket } from "@kpng/laboratory/laboratory.ts";
import { buildNetwork, network, podA, podB } from "@kpng/laboratory/one-node.ts";
import { families, servicePorts, writeManifests, writeService, writeSlice } from "./manifests.ts";
import { elapsed, firstAnswer, isFrom, type Observation, observe } from "./observe.ts";
import type { Print } from "./print.ts";

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
    await writeManifests(manifests, pods);
    await startProcesses(laboratory, print, running);
    await showPackets(client, print);
    await removePod(client, print, manifests);
    await replacePod(client, print, manifests);
    await moveAddresses(client, print, manifests);
    await showRules(laboratory, print);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const outputs = running.map(({ shown, output }) => `${shown}\n${output()}`).join("\n");
    throw new Error(`${reason}\n${outputs}`.trim(), { cause });
  }
}

async function showNetwork(laboratory: Laboratory, print: Print): Promise<AgentClient> {
  await buildNetwork(laboratory, network);
  const ports = servicePorts.map(({ targetPort }) => targetPort);
  await Promise.all(pods.map(({ name, v4, v6 }) => AgentClient.start(laboratory, name, ports, [v4, v6])));
  const links = pods.map(({ name, v4 }) => `${name} ${v4}`).join(", ");
  print.step("network", `client ${outside.v4} ── node ${node.name} ── ${links}`);
  print.detail("the same over IPv6, all in namespaces: this machine's network is not touched");
  return AgentClient.start(laboratory, outside.name);
}

/** A watcher or a backend of the demo, which runs until it is killed. */
interface Running {
  readonly child: ChildProcess;
  /** The command as a person would type it. */
  readonly shown: string;
  /** Standard output and standard error so far. */
  readonly output: () => string;
}

/** Starts watcher and backend as processes of their own. They share only a unix socket; the watcher has no network. */
async function startProcesses(laboratory: Laboratory, print: Print, running: Running[]): Promise<void> {
  const start = (name: string, words: readonly string[]): Running => {
    const child = laboratory.start(name, [process.execPath, process.argv[1] ?? "", ...words]);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        output += text;
      });
    }
    const shown = ["kpng", ...words].join(" ").replaceAll(`${laboratory.folder}/`, "");
    const one = { child, shown, output: () => output };
    running.push(one);
    return one;
  };
  const [manifests, socket] = [join(laboratory.folder, "manifests"), join(laboratory.folder, "proxy.sock")];
  await laboratory.add("watcher");
  const watcher = start("watcher", ["file", "-i", manifests, "to-api", "--listen", `unix://${socket}`]);
  await waitForSocket(watcher.child, socket);
  const externals = families.map(({ external }) => external).join(" and ");
  print.step("watch", `manifests in a folder: a Service with the external IPs ${externals}`);
  print.detail(watcher.shown);
  const api = [
    "--api",
    `unix://${socket}`,
    "--node-name",
    node.name,
    "--state-dir",
    "none",
    "--inspect-socket",
    join(laboratory.folder, "inspect.sock"),
  ];
  const backend = start(node.name, ["local", "to-nft", ...api]);
  print.step("backend", `on node ${node.name}: it receives what the node needs, and makes rules of nftables`);
  print.detail(backend.shown);
}

async function showPackets(client: AgentClient, print: Print): Promise<void> {
  const startMs = performance.now();
  const firsts = [];
  for (const { external } of families) firsts.push(await firstAnswer(client, external, pods));
  const ready = firsts.map((first) => elapsed(startMs, first)).at(-1);
  print.step("packets", `from the client; both addresses answered ${ready} after the backend started`);
  for (const { external } of families) {
    for (const { protocol, port } of servicePorts) {
      const names = await askTimes(client, protocol === "TCP" ? "tcp" : "udp", external, port);
      const counts = pods.map(({ name }) => `${name} answers ${names.filter((other) => other === name).length}`);
      print.result(`${external}  ${protocol} port ${port}: ${counts.join(", ")}`);
    }
  }
}

/** Asks 16 times at once and returns the names that answered. Errors: a missing answer. */
async function askTimes(
  client: AgentClient,
  protocol: "tcp" | "udp",
  address: string,
  port: number,
): Promise<readonly string[]> {
  const target = { protocol, address, port, timeoutMs: 1_000 };
  const answers = await Promise.all(Array.from({ length: 16 }, () => client.askOnce(target)));
  return answers.map((answer) => {
    if (answer.kind === "answer") return answer.name;
    throw new Error(`${protocol} ${address} port ${port}: ${answer.kind === "error" ? answer.code : answer.kind}`);
  });
}

/** Removes one pod from the EndpointSlices and shows the last packet that it got. */
async function removePod(client: AgentClient, print: Print, manifests: string): Promise<void> {
  print.step("change", `${podA.name} is removed from the EndpointSlice`);
  for (const family of families) {
    const changedAtMs = await writeSlice(manifests, family, [podB]);
    const known = await observe(client, family.external, areLast16FromB);
    const last = known.findLast(({ answer }) => isFrom(answer, podA));
    const isAfter = last !== undefined && last.sentAtMs > changedAtMs;
    const when = isAfter ? `last packet to ${podA.name} ${elapsed(changedAtMs, last)}` : `no packet to ${podA.name}`;
    print.result(`${family.external}: ${when} after the file changed, then all to ${podB.name}`);
  }
}

/**
 * True if pod B answered the last 16 packets. Each packet goes to either pod with the same probability, so 16 in a row
 * to one of two happen once in 65 536 times.
 */
function areLast16FromB(observations: readonly Observation[]): boolean {
  const last = observations.slice(-16);
  return last.length === 16 && last.every(({ answer }) => isFrom(answer, podB));
}

/** Replaces one pod by the other, so that the first answer of the new one shows when the change took effect. */
async function replacePod(client: AgentClient, print: Print, manifests: string): Promise<void> {
  print.step("change", `${podA.name} replaces ${podB.name} in the EndpointSlice`);
  for (const family of families) {
    const changedAtMs = await writeSlice(manifests, family, [podA]);
    const first = await firstAnswer(client, family.external, [podA]);
    print.result(
      `${family.external}: first packet to ${podA.name} ${elapsed(changedAtMs, first)} after the file changed`,
    );
  }
}

/** Gives the Service new addresses, and shows that they answer and the old ones no longer do. */
async function moveAddresses(client: AgentClient, print: Print, manifests: string): Promise<void> {
  print.step("change", "the Service gets new external IPs");
  const changedAtMs = await writeService(
    manifests,
    families.map(({ moved }) => moved),
  );
  // Both families at once: the second measurement would otherwise include the first wait.
  const firsts = await Promise.all(families.map(({ moved }) => firstAnswer(client, moved, [podA])));
  for (const [index, { external, moved }] of families.entries()) {
    const old = await client.askOnce({ protocol: "tcp", address: external, port: 80, timeoutMs: 300 });
    if (old.kind === "answer") throw new Error(`${external} still answers, from ${old.name}`);
    const first = firsts[index];
    const when = first === undefined ? "" : elapsed(changedAtMs, first);
    print.result(`${moved}: first packet answered ${when} after the file changed; ${external} no longer answers`);
  }
}

async function showRules(laboratory: Laboratory, print: Print): Promise<void> {
  const socket = join(laboratory.folder, "inspect.sock");
  print.step("rules", `the rules of the Service's IPv4 addresses on node ${node.name}`);
  const command = [process.execPath, process.argv[1] ?? "", "get", "rules", "v4", "--service", "default/web"];
  const rules = await laboratory.run(node.name, [...command, "--api", `unix://${socket}`]);
  for (const line of rules.trimEnd().split("\n")) print.detail(line);
}
