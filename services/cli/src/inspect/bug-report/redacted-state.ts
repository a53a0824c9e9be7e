import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import { applyGlobalOp, GlobalItems } from "@kpng/watcher/source/api/global-items.ts";
import { readRecording } from "@kpng/watcher/source/replay/recording.ts";
import type { ClusterObjects } from "@kpng/watcher/source/source.ts";
import { formatState } from "@kpng/watcher/state-file/format-state.ts";
import type { Redactor } from "./redactor.ts";

/**
 * Returns the last state of a recording with names and addresses replaced, as a state file, which `kpng file` reads.
 * The operations of the recording itself are encoded, so the names in them cannot be replaced as text.
 *
 * `bugReportCommand` calls it for `--redact`. Separate, because it needs code of a source, which other queries do not
 * load. Errors: BAD_INPUT.
 */
export function redactedState(path: string, redactor: Redactor): Uint8Array {
  const items = new GlobalItems();
  let objects: ClusterObjects = {};
  for (const line of readRecording(path)) {
    if (line.kind === "op" && applyGlobalOp(items, line.op)) objects = items.toObjects();
  }
  addNames(redactor, objects);
  const replaced = <T>(values: readonly T[] = []): readonly T[] =>
    values.map((value) => redactor.value(JSON.parse(JSON.stringify(value))) as T);
  const redacted = {
    services: replaced<Service>(objects.services),
    slices: replaced<EndpointSlice>(objects.slices),
    nodes: replaced<Node>(objects.nodes),
  };
  // The hashes of KPNG's format are made of names and addresses.
  return Buffer.from(formatState(redacted, () => 0n));
}

/**
 * Adds the names of the recording: objects may be newer than the lists of `bugReportCommand`, and hostnames are new.
 */
function addNames(redactor: Redactor, { services = [], slices = [], nodes = [] }: ClusterObjects): void {
  const add = (kind: string, ...names: readonly string[]): void => {
    for (const name of names) redactor.add(kind, name);
  };
  for (const { name, zone } of nodes) {
    add("node", name);
    add("zone", zone);
  }
  for (const { namespace, name, proxyName } of services) {
    add("namespace", namespace);
    add("service", name);
    add("proxy", proxyName);
  }
  for (const { namespace, name, serviceName, endpoints } of slices) {
    add("namespace", namespace);
    add("service", serviceName);
    add("slice", name);
    for (const { podName, hostname, nodeName, zone, hintedZones, hintedNodes } of endpoints) {
      add("pod", podName);
      add("host", hostname);
      add("node", nodeName, ...hintedNodes);
      add("zone", zone, ...hintedZones);
    }
  }
}
