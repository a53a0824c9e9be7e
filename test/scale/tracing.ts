import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startOtlpReceiver } from "../trace/otlp-receiver.ts";
import type { HollowNodesHandlers } from "./hollow-nodes.ts";
import { startCalled } from "./processes.ts";
import { startOwnServer } from "./server-under-test.ts";

/**
 * Measures the cost of tracing in the watcher: CPU time for one change that reaches all nodes, with different shares of
 * traced changes and without tracing, in the same process. The shares alternate after a few changes, and only results
 * of the same round are compared, so that other load affects all shares equally.
 */
const usage = `node test/scale/tracing.ts [options]

  --streams <n>   hollow nodes (1000)
  --services <n>  Services of ten endpoints (200)
  --rounds <n>    turns of each share (40)
  --changes <n>   changes in a turn (10)
`;

const shares = [
  { name: "off", ratio: undefined },
  { name: "off again", ratio: undefined },
  { name: "0 %", ratio: 0 },
  { name: "1 %", ratio: 0.01 },
  { name: "100 %", ratio: 1 },
] as const;

const fleet = "readers";
const timeoutMs = 60_000;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      streams: { type: "string", default: "1000" },
      services: { type: "string", default: "200" },
      rounds: { type: "string", default: "40" },
      changes: { type: "string", default: "10" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return;
  }
  const [streams, services, rounds, changes] = [values.streams, values.services, values.rounds, values.changes].map(
    Number,
  ) as [number, number, number, number];
  await using receiver = await startOtlpReceiver();
  Object.assign(process.env, receiver.environment);
  const server = await startOwnServer({ services, endpoints: 10, nodes: streams }, undefined);
  const load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  try {
    const options = { address: server.address, streams, firstNode: 0, isExtended: true, streamsPerConnection: 1 };
    await load.call("open", { fleet, options, timeoutMs });
    const turn = async (ratio: number | undefined): Promise<number> => {
      await server.calls.call("traceAt", { ratio });
      const before = await server.cpu();
      for (let count = 0; count < changes; count += 1) {
        const { revision } = await server.change();
        await load.call("reachedRevision", { fleet, revision, timeoutMs });
        // The next requests of all streams are part of the cost.
        await sleep(25 + streams / 25);
      }
      return ((await server.cpu()) - before) / changes;
    };
    await turn(1);
    await turn(undefined);
    const costs = shares.map((): number[] => []);
    for (let round = 0; round < rounds; round += 1) {
      // Each share runs first, second, … equally often.
      for (let at = 0; at < shares.length; at += 1) {
        const index = (round + at) % shares.length;
        costs[index]?.push(await turn(shares[index]?.ratio));
      }
    }
    const [base = []] = costs;
    const rows = shares.map(({ name }, index) => {
      const own = costs[index] ?? [];
      const ratios = own.map((cost, round) => cost / (base[round] ?? Number.NaN) - 1);
      return `| ${name} | ${median(own).toFixed(2)} | ${(100 * median(ratios)).toFixed(1)} % |`;
    });
    const heading = [`${streams} nodes, ${services} Services, ${rounds} rounds of ${changes} changes`, ""];
    const table = ["| traced | CPU ms of the watcher for a change | against off, median of rounds |", "|---|---|---|"];
    process.stdout.write(`${[...heading, ...table, ...rows].join("\n")}\n\n${receiver.spans.length} spans received\n`);
  } finally {
    await load.stop();
    await server.stop();
  }
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const [below = Number.NaN, above = below] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  return (below + above) / 2;
}

await main();
