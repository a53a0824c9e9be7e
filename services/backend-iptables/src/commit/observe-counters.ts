import { Counter, type Registry } from "prom-client";
import type { RunTool } from "../read/run-tool.ts";
import type { CounterNames } from "../render/render-options.ts";
import { readPackets } from "./packet-counters.ts";

/**
 * Adds the kernel's packet counters to the metrics, with kube-proxy's names. Each scrape reads the counters.
 *
 * `observeRules`, which makes the other metrics, calls it only after a sync has created the counters. Earlier the
 * metrics would show 0, as if no packet had matched. `PacketCounters` creates the counters; this file only shows them.
 */
export function observeCounters(registry: Registry, names: CounterNames, run: RunTool): void {
  const registers = [registry];
  new Counter({
    name: "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
    help: "Packets that were dropped because their conntrack state is INVALID",
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

/** Sets a counter to the kernel's value, or leaves it unchanged if the value cannot be read. */
async function setTo(counter: Counter, read: Promise<number | undefined>): Promise<void> {
  const packets = await read.catch(() => undefined);
  if (packets === undefined) return;
  counter.reset();
  counter.inc(packets);
}
