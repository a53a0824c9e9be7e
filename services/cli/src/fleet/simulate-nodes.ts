import { connectHttp2 } from "@kpng/process/connection/dial.ts";
import { clientOptions, readCredentials } from "@kpng/process/credential-files.ts";
import { addOptions, type OptionSpec, oneOf, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { makeRandom } from "@kpng/process/random.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { Command } from "commander";
import type { Options } from "../context/command-context.ts";
import { type NodeFault, nodeFaults, runFleet, SimulatedNode } from "./simulated-node.ts";

const options: readonly OptionSpec[] = [
  repeatable(
    "--api <address>",
    "watchers among which the nodes are divided: host:port, https://host:port or unix:///path",
    ["127.0.0.1:12090"],
  ),
  ...clientOptions("the connections to the watchers"),
  {
    flags: "--count <number>",
    description: "number of nodes, named as in kpng simulate, each with a connection of its own",
    default: 100,
    parse: parseWholeNumber("--count", 1, 100_000),
  },
  {
    flags: "--plain",
    description: "make the requests of the original KPNG: no compressed batches, no acknowledgements",
  },
  {
    flags: "--node-fault <name>",
    description: `what each tenth node does wrong: ${Object.keys(nodeFaults).join(", ")}`,
    parse: oneOf(Object.keys(nodeFaults)),
  },
  { flags: "--once", description: "end when every node has its view, and print how long it took" },
];

const examples = `
A node reads its view and keeps nothing of it. A line per second says how many nodes have their view, how many streams were
lost, the batches of this second, and the oldest and the newest revision that a node has. Random delays follow --seed.

Faults:
${Object.entries(nodeFaults)
  .map(([name, text]) => `  ${name.padEnd(10)}${text}`)
  .join("\n")}

Examples:
  kpng simulate --services 5000 --nodes 1000 --changes 50/s to-api --listen 127.0.0.1:12090
  kpng simulate nodes --count 1000 --api 127.0.0.1:12090
  kpng simulate nodes --count 1000 --node-fault freeze
`;

/** `kpng simulate nodes`: a fleet of nodes without rules, for trying watchers. */
export function makeSimulateNodes(signal: AbortSignal): Command {
  return addOptions(new Command("nodes"), options)
    .description("play many nodes that follow their views from watchers, with faults if asked")
    .addHelpText("after", examples)
    .action((_: Options, self: Command) => run(self.optsWithGlobals(), signal));
}

async function run(given: Options, signal: AbortSignal): Promise<void> {
  const { once } = given;
  const stop = new AbortController();
  const ended = AbortSignal.any([signal, stop.signal]);
  const startMs = performance.now();
  const nodes = makeNodes(given, () => {
    if (once === true && nodes.every(({ isSynced }) => isSynced)) stop.abort();
  });
  await Promise.all([runFleet(nodes, ended), ...(once === true ? [] : [report(nodes, ended)])]);
  if (once !== true) return;
  if (signal.aborted) {
    const { failure = "no answer" } = nodes.find(({ isSynced }) => !isSynced) ?? {};
    const left = nodes.filter(({ isSynced }) => !isSynced).length;
    throw new ProcessError(
      "REQUEST_FAILED",
      `interrupted while ${left} of ${nodes.length} nodes had no view: ${failure}`,
    );
  }
  process.stdout.write(`${nodes.length} nodes have their view after ${Math.round(performance.now() - startMs)} ms\n`);
}

function makeNodes(given: Options, onBatch: (node: SimulatedNode) => void): readonly SimulatedNode[] {
  const { count, plain, nodeFault, seed, api } = given;
  const addresses = api as readonly string[];
  const client = readCredentials(given);
  const random = makeRandom(Number(seed));
  return Array.from({ length: Number(count) }, (_, index) => {
    const fault = index % 10 === 0 ? (nodeFault as NodeFault | undefined) : undefined;
    const address = addresses[index % addresses.length] ?? "";
    return new SimulatedNode({
      name: `node-${fault === "duplicate" ? 0 : index}`,
      connect: (windowBytes) => connectHttp2({ api: address, ...client }, windowBytes),
      isExtended: plain !== true,
      fault,
      random,
      onBatch,
    });
  });
}

/** Prints a line per second until `signal` aborts. */
async function report(nodes: readonly SimulatedNode[], signal: AbortSignal): Promise<void> {
  const total = (value: (node: SimulatedNode) => number): number => nodes.reduce((sum, node) => sum + value(node), 0);
  let batches = 0;
  while (!signal.aborted) {
    await waitMs(1_000, signal);
    if (signal.aborted) return;
    const before = batches;
    batches = total(({ batchCount }) => batchCount);
    const revisions = nodes.map(({ revision }) => revision);
    const failure = nodes.find((node) => node.failure !== undefined)?.failure;
    const parts = [
      `nodes ${nodes.length}`,
      `synced ${total(({ isSynced }) => (isSynced ? 1 : 0))}`,
      `lost ${total(({ lostCount }) => lostCount)}`,
      `batches ${batches - before}`,
      `revisions ${revisions.reduce((a, b) => Math.min(a, b))} to ${revisions.reduce((a, b) => Math.max(a, b))}`,
      ...(failure === undefined ? [] : [`(${failure})`]),
    ];
    process.stdout.write(`${parts.join("  ")}\n`);
  }
}
