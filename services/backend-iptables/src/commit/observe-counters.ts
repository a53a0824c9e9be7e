import { Counter, type Registry } from "prom-client";
import type { RunTool } from "../read/run-tool.ts";
import type { CounterNames } from "../render/render-options.ts";
import { readPackets } from "./packet-counters.ts";

/**
 * Serves the packet counters of rules under kube-proxy's names, read at each scrape. Call it once the counters exist: a 0
 * would say that no packet was counted.
 */
export function observeCounters(registry: Registry, names: CounterNames, run: RunTool): void {
  const registers = [registry];
  new Counter({
    name: "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
    help: "Packets that were dropped because conntrack calls them INVALID",
    registers,
    collect() {
      return setTo(this, readPackets(names.invalidDropped, run));
    },
  });
  new Counter({
    name: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
    help: "Connections that were accepted at a node port on localhost",
    registers,
    collect() {
      return setTo(this, readPackets(names.localhostAccepted, run));
    },
  });
}

/** Sets a counter to the kernel's count; a count that cannot be read leaves it as it was. */
async function setTo(counter: Counter, read: Promise<number | undefined>): Promise<void> {
  const packets = await read.catch(() => undefined);
  if (packets === undefined) return;
  counter.reset();
  counter.inc(packets);
}
