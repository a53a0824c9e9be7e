import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { styleText } from "node:util";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { type Laboratory, waitForSocket } from "@kpng/laboratory/laboratory.ts";
import { buildNetwork, network, podA, podB } from "@kpng/laboratory/one-node.ts";
import { families, servicePorts, writeManifests, writeService, writeSlice } from "./manifests.ts";
import { elapsed, firstAnswer, isFrom, type Observation, observe } from "./observe.ts";

/** The file that this process runs: the sources or the bundle. */
export const kpngMain = process.argv[1] ?? "";

const { client: outside, node, pods } = network;

/**
 * Runs every step of the demo in an open laboratory, with real processes and real packets.
 *
 * Errors: a step that did not go as expected, with the output of the processes. They end with the laboratory.
 */
export async function runWalkthrough(laboratory: Laboratory): Promise<void> {
  const running: Running[] = [];
  try {
    const client = await showNetwork(laboratory);
    const manifests = join(laboratory.folder, "manifests");
    writeManifests(manifests, pods);
    await startProcesses(laboratory, manifests, running);
    await showPackets(client);
    await removePod(client, manifests);
    await replacePod(client, manifests);
    await moveAddresses(client, manifests);
    await showRules(laboratory);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const outputs = running.map(({ shown, output }) => `${shown}\n${output}`).join("\n");
    throw new Error(`${reason}\n${outputs}`.trim(), { cause });
  }
}

export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

function printStep(number: number, name: string, text: string): void {
  print(`${styleText("dim", ` ${number}`)}  ${styleText("bold", name.padEnd(10))}${text}`);
}

/** Prints a detail of the step, or in green a measurement or an outcome. */
function printLine(text: string, style: "dim" | "green"): void {
  print(" ".repeat(14) + styleText(style, text));
}

async function showNetwork(laboratory: Laboratory): Promise<AgentClient> {
  await buildNetwork(laboratory, network);
  const ports = servicePorts.map(({ targetPort }) => targetPort);
  await Promise.all(pods.map(({ name, v4, v6 }) => AgentClient.start(laboratory, name, ports, [v4, v6])));
  const links = pods.map(({ name, v4 }) => `${name} ${v4}`).join(", ");
  printStep(1, "network", `client ${outside.v4} ── node ${node.name} ── ${links}`);
  printLine("the same over IPv6, all in namespaces: this machine's network is not touched", "dim");
  return AgentClient.start(laboratory, outside.name);
}

/** A watcher or a backend of the demo, which runs until it is killed. */
interface Running {
  readonly child: ChildProcess;
  /** The command as a person would type it. */
  readonly shown: string;
  /** Standard output and standard error so far. */
  output: string;
}

/** Starts watcher and backend as processes of their own. They share only a unix socket; the watcher has no network. */
async function startProcesses(laboratory: Laboratory, manifests: string, running: Running[]): Promise<void> {
  const start = (name: string, ...words: readonly string[]): Running => {
    const child = laboratory.start(name, [process.execPath, kpngMain, ...words]);
    const one = { child, shown: `kpng ${words.join(" ")}`.replaceAll(`${laboratory.folder}/`, ""), output: "" };
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        one.output += text;
      });
    }
    running.push(one);
    return one;
  };
  const socket = join(laboratory.folder, "proxy.sock");
  await laboratory.add("watcher");
  const watcher = start("watcher", "file", "-i", manifests, "to-api", "--listen", `unix://${socket}`);
  await waitForSocket(watcher.child, socket);
  const externals = families.map(({ external }) => external).join(" and ");
  printStep(2, "watch", `manifests in a folder: a Service with the external IPs ${externals}`);
  printLine(watcher.shown, "dim");
  const connection = ["--api", `unix://${socket}`, "--node-name", node.name];
  const more = ["--state-dir", "none", "--inspect-socket", join(laboratory.folder, "inspect.sock")];
  const backend = start(node.name, "local", "to-nft", ...connection, ...more);
  printStep(3, "backend", `on node ${node.name}: it receives what the node needs, and makes rules of nftables`);
  printLine(backend.shown, "dim");
}

async function showPackets(client: AgentClient): Promise<void> {
  const startMs = performance.now();
  let ready = "";
  for (const { external } of families) ready = elapsed(startMs, await firstAnswer(client, external, pods));
  printStep(4, "packets", `from the client; both addresses answered ${ready} after the backend started`);
  for (const { external } of families) {
    for (const { protocol, port } of servicePorts) {
      const names = await askTimes(client, protocol === "TCP" ? "tcp" : "udp", external, port);
      const counts = pods.map(({ name }) => `${name} answers ${names.filter((other) => other === name).length}`);
      printLine(`${external}  ${protocol} port ${port}: ${counts.join(", ")}`, "green");
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
async function removePod(client: AgentClient, manifests: string): Promise<void> {
  printStep(5, "change", `${podA.name} is removed from the EndpointSlice`);
  for (const family of families) {
    const changedAtMs = writeSlice(manifests, family, [podB]);
    const known = await observe(client, family.external, (all) => (areLast16FromB(all) ? all : undefined));
    const last = known.findLast(({ answer }) => isFrom(answer, podA));
    const isAfter = last !== undefined && last.sentAtMs > changedAtMs;
    const when = isAfter ? `last packet to ${podA.name} ${elapsed(changedAtMs, last)}` : `no packet to ${podA.name}`;
    printLine(`${family.external}: ${when} after the file changed, then all to ${podB.name}`, "green");
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
async function replacePod(client: AgentClient, manifests: string): Promise<void> {
  printStep(6, "change", `${podA.name} replaces ${podB.name} in the EndpointSlice`);
  for (const family of families) {
    const changedAtMs = writeSlice(manifests, family, [podA]);
    const when = elapsed(changedAtMs, await firstAnswer(client, family.external, [podA]));
    printLine(`${family.external}: first packet to ${podA.name} ${when} after the file changed`, "green");
  }
}

/** Gives the Service new addresses, and shows that they answer and the old ones no longer do. */
async function moveAddresses(client: AgentClient, manifests: string): Promise<void> {
  printStep(7, "change", "the Service gets new external IPs");
  const movedIPs = families.map(({ moved }) => moved);
  const changedAtMs = writeService(manifests, movedIPs);
  // Both families at once: the second measurement would otherwise include the first wait.
  const times = await Promise.all(
    movedIPs.map(async (moved) => elapsed(changedAtMs, await firstAnswer(client, moved, [podA]))),
  );
  for (const [index, { external, moved }] of families.entries()) {
    const old = await client.askOnce({ protocol: "tcp", address: external, port: 80, timeoutMs: 300 });
    if (old.kind === "answer") throw new Error(`${external} still answers, from ${old.name}`);
    const text = `${moved}: first packet answered ${times[index]} after the file changed`;
    printLine(`${text}; ${external} no longer answers`, "green");
  }
}

async function showRules(laboratory: Laboratory): Promise<void> {
  printStep(8, "rules", `the rules of the Service's IPv4 addresses on node ${node.name}`);
  const api = ["--api", `unix://${join(laboratory.folder, "inspect.sock")}`];
  const command = [process.execPath, kpngMain, "get", "rules", "v4", "--service", "default/web", ...api];
  const rules = await laboratory.run(node.name, command);
  for (const line of rules.trimEnd().split("\n")) printLine(line, "dim");
}
