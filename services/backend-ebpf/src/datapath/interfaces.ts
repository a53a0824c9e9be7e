import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { toolEnvironment } from "@kpng/backend-kit/exec/tool-environment.ts";
import type { PodTraffic } from "@kpng/service-plan/service-plan.ts";

/**
 * Returns the names of the interfaces that `Datapath` attaches the program of packets to: those in the network
 * namespace of this process, ascending. `patterns` are names that may end in `*`; empty for all but the loopback
 * device.
 */
export function listInterfaces(patterns: readonly string[], table = readFileSync("/proc/net/dev", "utf8")) {
  const names = [...table.matchAll(/^\s*([^\s:|]+):/gm)].map(([, name = ""]) => name);
  const isWanted = (name: string): boolean =>
    patterns.length === 0 ? name !== "lo" : patterns.some((pattern) => matches(name, pattern));
  return names.filter(isWanted).sort();
}

function matches(name: string, pattern: string): boolean {
  return pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/**
 * Returns those interfaces by which only pods of this node send: where the plan recognizes pods by an interface, that
 * interface and the ports of that bridge.
 */
export function podInterfaces(names: readonly string[], podTraffic: PodTraffic | undefined): readonly string[] {
  if (podTraffic === undefined || podTraffic.kind === "source") return [];
  const isOfPods = (name: string): boolean =>
    podTraffic.kind === "interface" ? name === podTraffic.name : name.startsWith(podTraffic.prefix);
  const bridges = readBridges();
  return names.filter((name) => isOfPods(name) || isOfPods(bridges.get(name) ?? ""));
}

/** Returns the bridge of each interface that belongs to one. */
function readBridges(): ReadonlyMap<string, string> {
  const { stdout } = spawnSync("ip", ["-o", "link", "show"], {
    ...{ encoding: "utf8", env: toolEnvironment(), timeout: 30_000, maxBuffer: 64 * 1024 * 1024 },
  });
  return parseBridges(stdout ?? "");
}

/** Parses the output of `ip -o link show`. *Shape of a line:* `5: veth1@if2: <UP> mtu 1500 … master cni0 …`. Pure. */
export function parseBridges(text: string): ReadonlyMap<string, string> {
  const lines = text.matchAll(/^\d+: ([^\s:@]+)\S* .*? master (\S+)/gm);
  return new Map([...lines].map(([, name = "", bridge = ""]) => [name, bridge]));
}
