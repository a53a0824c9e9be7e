import { families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { addressesOn, parseLink, parseSets } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { kubeProxyInterface } from "../render/kube-proxy-names.ts";
import { type ObjectNames, setCreation, setName } from "../render/object-names.ts";
import { handedOver, recordElement, recordIn } from "../render/record-element.ts";

interface HandOverOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
}

/**
 * Moves the service addresses to the interface of kube-proxy in ipvs mode, and records that it owns the virtual servers
 * at them from now on. Traffic goes on: rules and virtual servers stay. The next cleanup leaves these virtual servers.
 *
 * `--hand-over-to-kube-proxy` runs it, while neither proxy runs. Without it, kube-proxy would take the addresses of our
 * interface for the node's own, with a virtual server for each of them and each node port. Separate from
 * `removeObjects`, which removes the rest after kube-proxy's first sync.
 *
 * The record is written wherever an ipset says which virtual servers are ours, also without our interface. Without such
 * an ipset no cleanup finds virtual servers, so none is needed; the log says so.
 *
 * Errors: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING. Each address is on at least one interface at any time; another
 * run does the rest.
 */
export async function handOver({ names, runTool, log }: HandOverOptions): Promise<void> {
  const links = await runTool.read(["ip", "-o", "link", "show"]);
  const saved = await runTool.read(["ipset", "save"]);
  const hasInterface = parseLink(links, names.interfaceName) !== "missing";
  const owning = families
    .map((family) => ({ family, sets: parseSets(saved, names, family) }))
    .filter(({ sets }) => sets.has("SERVERS"));
  const fields = { ours: names.interfaceName, theirs: kubeProxyInterface };
  if (!hasInterface && owning.every(({ sets }) => recordIn(sets) === handedOver)) {
    if (owning.length > 0) return log.info("nothing left to hand over: an earlier run has done it", fields);
    return log.info("nothing to hand over: kpng-ipvs has neither addresses nor ipsets on this node", fields);
  }
  const addresses = hasInterface ? await copyAddresses(links, { names, runTool }) : 0;
  const records = owning.flatMap(({ family, sets }) => [
    ...(sets.has("RECORD") ? [] : [setCreation(names, family, "RECORD")]),
    `add ${setName(names, family, "RECORD")} ${recordElement(handedOver)}`,
  ]);
  if (records.length > 0) await runTool.write(["ipset", "-exist", "restore"], records);
  if (hasInterface) await runTool.write(["ip", "-batch", "-"], [`link delete ${names.interfaceName}`]);
  const message =
    owning.length > 0
      ? "handed over to kube-proxy: the next cleanup leaves virtual servers at addresses"
      : "addresses handed over to kube-proxy: no ipset has our virtual servers, so every cleanup leaves all";
  log.info(message, { ...fields, addresses });
}

/** Gives all addresses of our interface to that of kube-proxy, too. Returns the number of those that it lacked. */
async function copyAddresses(links: string, { names, runTool }: Omit<HandOverOptions, "log">): Promise<number> {
  const all = await runTool.read(["ip", "-o", "address", "show"]);
  const missing = addressesOn(all, names.interfaceName).difference(addressesOn(all, kubeProxyInterface));
  const adds = [...missing].map(
    (address) => `address add ${address}/${address.includes(":") ? 128 : 32} dev ${kubeProxyInterface}`,
  );
  const creation =
    parseLink(links, kubeProxyInterface) === "missing" ? [`link add ${kubeProxyInterface} type dummy`] : [];
  await runTool.write(["ip", "-batch", "-"], [...creation, ...adds]);
  return missing.size;
}
