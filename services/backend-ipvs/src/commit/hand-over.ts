import { families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { parseSets } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { type ObjectNames, setCreation, setName } from "../render/object-names.ts";
import { handedOver, recordElement, recordIn } from "../render/record-element.ts";

interface HandOverOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
}

/**
 * Records that kube-proxy in ipvs mode owns the interface and the virtual servers at its addresses from now on. Nothing
 * else changes: kube-proxy uses the same interface, and takes over virtual servers that it finds. The next cleanup
 * leaves both.
 *
 * `--hand-over-to-kube-proxy` runs it, while neither proxy runs. Without ipsets of ours no cleanup finds an interface
 * or virtual servers, so no record is needed; the log says so.
 *
 * Errors: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING; another run does the rest.
 */
export async function handOver({ names, runTool, log }: HandOverOptions): Promise<void> {
  const saved = await runTool.read(["ipset", "save"]);
  const owning = families
    .map((family) => ({ family, sets: parseSets(saved, names, family) }))
    .filter(({ sets }) => sets.has("SERVERS"));
  const fields = { interface: names.interfaceName };
  if (owning.length === 0) return log.info("nothing to hand over: kpng-ipvs has no ipsets on this node", fields);
  if (owning.every(({ sets }) => recordIn(sets) === handedOver))
    return log.info("nothing left to hand over: an earlier run has done it", fields);
  const records = owning.flatMap(({ family, sets }) => [
    ...(sets.has("RECORD") ? [] : [setCreation(names, family, "RECORD")]),
    `add ${setName(names, family, "RECORD")} ${recordElement(handedOver)}`,
  ]);
  await runTool.write(["ipset", "-exist", "restore"], records);
  log.info("handed over to kube-proxy: the next cleanup leaves its interface and virtual servers", fields);
}
