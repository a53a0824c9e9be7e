import { families } from "@kpng/model/address.ts";
import { readEbpfSettings } from "../backend.ts";
import { EbpfMaps } from "../datapath/maps.ts";
import { describeInstalled } from "../tables/frontends.ts";

// Prints what programs read in the maps of kpng-ebpf, one line each, sorted: `node dump.ts [OPTIONS]`.
// Places in the maps are left out, so that two instances with the same view have the same lines. OPTIONS are the parsed
// options of the backend as JSON.

const [options = "{}"] = process.argv.slice(2);
const { folder, mapSizes } = readEbpfSettings(JSON.parse(options), "");
const maps = EbpfMaps.openExisting(folder, mapSizes);
if (maps === undefined) throw new Error("no maps");
const contents = maps.contents();
const addresses = maps
  .get("node_addresses")
  .entries()
  .map(([key, value]) => `node_addresses ${key.toString("hex")} ${value.toString("hex")}`);
const lines = [
  ...families.flatMap((family) => [...describeInstalled(family, contents).values()]),
  ...addresses,
  // Also those whose slot belongs to another frontend, which are not described.
  `${contents.frontends.length} frontends`,
  ...[0, 1].map((family) => `config ${maps.get("config").get(family).toString("hex")}`),
];
process.stdout.write(lines.sort().join("\n"));
