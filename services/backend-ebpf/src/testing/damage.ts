import { readdirSync } from "node:fs";
import { join } from "node:path";
import { readEbpfSettings } from "../backend.ts";
import { openPinned } from "../bpf/bpf-map.ts";
import { makeAttribute, requireBpf } from "../bpf/system-call.ts";
import { EbpfMaps } from "../datapath/maps.ts";
import { routeKinds, sizes } from "../layout/layout.ts";

// Changes the maps of kpng-ebpf as another program could: `node damage.ts KIND [OPTIONS]`. KIND is what is
// damaged: one frontend, all frontends, one endpoint, one route, or all links, which are detached
// (BPF_LINK_DETACH); `link:connect4` is one of them. OPTIONS are the parsed options of the backend as JSON.

const [kind = "", options = "{}"] = process.argv.slice(2);
const { folder, mapSizes } = readEbpfSettings(JSON.parse(options), "");
const maps = EbpfMaps.openExisting(folder, mapSizes);
if (maps === undefined) throw new Error("no maps");
const { memory: slots } = maps.get("slots");
// A frontend that balances: damage to a route that refuses would change nothing.
const balances = (slot: Buffer): boolean => slots[slot.readUInt32LE(0) * sizes.slot] === routeKinds.balance;
const frontend = maps
  .get("frontends")
  .entries()
  .find(([, slot]) => balances(slot));
if (kind === "frontends") {
  for (const [key] of maps.get("frontends").entries()) maps.get("frontends").delete(key);
  process.exit();
}
if (frontend === undefined) throw new Error("no frontends");
const slot = frontend[1].readUInt32LE(0) * sizes.slot;
const { memory: endpoints } = maps.get("endpoints");
if (kind === "frontend") maps.get("frontends").delete(frontend[0]);
if (kind === "route") slots.writeUInt8(routeKinds.refuse, slot);
const links = join(folder, "links");
for (const file of kind.startsWith("link") ? readdirSync(links) : []) {
  const link = kind === "links" || kind === `link:${file}` ? openPinned(join(links, file)) : undefined;
  if (link !== undefined) requireBpf("the link cannot be detached", 34, makeAttribute(4, [0, link]));
}
// The port of the first endpoint.
if (kind === "endpoint") endpoints.writeUInt16BE(1, (slots.readUInt32LE(slot + 4) + 1) * sizes.endpoint + 16);
