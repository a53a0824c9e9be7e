import { type OptionSpec, oneOf, parseWholeNumber } from "@kpng/process/options.ts";
import { makeRandom } from "@kpng/process/random.ts";
import { type ClusterFault, clusterFaults, simulateSource } from "@kpng/source/simulate/simulate-source.ts";
import { InvalidArgumentError } from "commander";
import { makeSimulateNodes } from "../fleet/simulate-nodes.ts";
import type { SourceCommand } from "./source-command.ts";

/** `kpng simulate`: a synthetic cluster that changes all the time, for trying backends without a cluster. */
export const sourceCommand: SourceCommand = {
  name: "simulate",
  options: [
    countOption("--services <count>", "number of Services", 100, 1, 1_000_000),
    countOption("--endpoints <count>", "number of endpoints of each Service", 10, 0, 10_000),
    countOption("--nodes <count>", "number of nodes, named node-0, node-1, …, in three zones", 10, 1, 200_000),
    {
      flags: "--changes <rate>",
      description: "changes per second, e.g. 50/s, or 0: readiness of an endpoint, rollouts, deletions and creations",
      default: 1,
      parse: parseRate,
    },
    countOption("--seed <number>", "the same seed leads to the same changes in the same order", 1, 0, 2 ** 31 - 1),
    {
      flags: "--fault <name>",
      description: `what goes wrong, 20 s after the start and after the last time: ${Object.keys(clusterFaults).join(" or ")}`,
      parse: oneOf(Object.keys(clusterFaults)),
    },
  ],
  examples: `
Faults:
${Object.entries(clusterFaults)
  .map(([name, text]) => `  ${name.padEnd(15)}${text}`)
  .join("\n")}

Examples:
  kpng simulate --services 5000 --endpoints 10 --nodes 100 --changes 50/s to-api
  kpng simulate --changes 0 get services
  kpng simulate nodes --count 1000 --api 127.0.0.1:12090
`,
  more: (signal) => [makeSimulateNodes(signal)],
  make: (options, sink, context) =>
    simulateSource({
      shape: {
        services: Number(options.services),
        endpoints: Number(options.endpoints),
        nodes: Number(options.nodes),
      },
      // A query that does not watch is about the cluster at its start.
      rate: options.isQuery === true && options.watch !== true ? 0 : Number(options.changes),
      random: makeRandom(Number(options.seed)),
      fault: options.fault as ClusterFault | undefined,
      sink,
      ...context,
    }),
};

function countOption(flags: string, description: string, standard: number, min: number, max: number): OptionSpec {
  return { flags, description, default: standard, parse: parseWholeNumber(flags.replace(/ .*/, ""), min, max) };
}

function parseRate(text: string): number {
  const [, digits] = /^(\d+(?:\.\d+)?)(?:\/s)?$/.exec(text) ?? [];
  const rate = Number(digits);
  if (digits !== undefined && rate <= 10_000) return rate;
  throw new InvalidArgumentError("expected changes per second, e.g. 50/s, at most 10000/s");
}
