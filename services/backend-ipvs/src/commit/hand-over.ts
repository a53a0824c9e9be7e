import { families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { addressesOn, parseLink, parseSets } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { kubeProxyInterface } from "../render/kube-proxy-names.ts";
import { type ObjectNames, setName } from "../render/object-names.ts";
import { handedOver, recordElement } from "../render/record-element.ts";

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
 * Errors: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING. Each address is on at least one interface at any time; another
 * run does the rest.
 */
export async function handOver({ names, runTool, log }: HandOverOptions): Promise<void> {
  const links = await runTool.read(["ip", "-o", "link", "show"]);
  if (parseLink(links, names.interfaceName) === "missing") {
    return log.info("nothing to hand over", { interface: names.interfaceName });
  }
  const all = await runTool.read(["ip", "-o", "address", "show"]);
  const missing = addressesOn(all, names.interfaceName).difference(addressesOn(all, kubeProxyInterface));
  const adds = [...missing].map(
    (address) => `address add ${address}/${address.includes(":") ? 128 : 32} dev ${kubeProxyInterface}`,
  );
  const creation =
    parseLink(links, kubeProxyInterface) === "missing" ? [`link add ${kubeProxyInterface} type dummy`] : [];
  await runTool.write(["ip", "-batch", "-"], [...creation, ...adds]);
  const saved = await runTool.read(["ipset", "save"]);
  const records = families
    .filter((family) => parseSets(saved, names, family).has("RECORD"))
    .map((family) => `add ${setName(names, family, "RECORD")} ${recordElement(handedOver)}`);
  await runTool.write(["ipset", "-exist", "restore"], records);
  await runTool.write(["ip", "-batch", "-"], [`link delete ${names.interfaceName}`]);
  log.info("addresses handed over to kube-proxy", { interface: kubeProxyInterface, addresses: missing.size });
}
