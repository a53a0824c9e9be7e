import { Counter, type Registry } from "prom-client";
import { readPackets } from "./commit/packet-counters.ts";
import type { RunTool } from "./read/run-tool.ts";
import type { CounterNames } from "./render/render-options.ts";

/**
 * Serves what the rules count, under kube-proxy's names; to be called once there are counters, because a 0 would say that
 * nothing happens. They are read at each scrape.
 */
export function createCounterMetrics(registry: Registry, names: CounterNames, run: RunTool): void {
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

/** The kernel counts; what cannot be read stays what it was. */
async function setTo(counter: Counter, read: Promise<number | undefined>): Promise<void> {
  const packets = await read.catch(() => undefined);
  if (packets === undefined) return;
  counter.reset();
  counter.inc(packets);
}
