import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import type { ReceivedSpan } from "../trace/traces.ts";

/** CPU time and memory of a program of an image. */
export interface ImageFigures {
  /** CPU time until the node's first view was applied, or until the watcher had served all nodes, in seconds. */
  readonly startCpuS: number;
  /** Resident memory after {@link idleMs} without a change, in MB; without BPF maps, whose memory is the kernel's. */
  readonly idleMB: number;
}

/** Time without a change before memory counts as idle, in milliseconds: the collections after the start are over. */
export const idleMs = 30_000;

/** A change of the Service of deploy/compose/manifests: another endpoint. JSON is YAML. */
export const change = JSON.stringify({
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { namespace: "default", name: "web-b", labels: { "kubernetes.io/service-name": "web" } },
  addressType: "IPv4",
  ports: [{ name: "http", port: 8080, protocol: "TCP" }],
  endpoints: [{ addresses: ["10.123.0.13"], conditions: { ready: true, serving: true, terminating: false } }],
});

/** Returns the names of the nodes that a watcher says are current. */
export async function currentNodes(watcherSocket: string): Promise<readonly string[]> {
  const query = ["get", "nodes", "--state", "current", "--output", "name"];
  const args = ["services/cli/src/main.ts", ...query, "--api", `unix://${watcherSocket}`];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  return [...stdout.matchAll(/^node\/(\S+)$/gm)].map(([, name = ""]) => name);
}

/** Returns whether a program exported the span of a change: the watcher's of its view, a backend's of its commit. */
export function hasTraced(spans: readonly ReceivedSpan[], image: string): boolean {
  const wanted = image === "watcher" ? "view.compute" : "backend.commit";
  return spans.some(({ name, resource }) => name === wanted && resource["service.name"] === `kpng-${image}`);
}

/**
 * Returns what a process has used: CPU time in seconds, and resident memory in MB.
 *
 * BPF maps that the process has mapped do not count: the kernel keeps them for its programs, with or without a process.
 *
 * *Source:* proc(5). Fields 14 and 15 of `/proc/PID/stat` are in hundredths of a second.
 */
export function readProcess(pid: number): { readonly cpuS: number; readonly residentMB: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The second field, the name, may contain spaces.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const resident = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  const maps = readFileSync(`/proc/${pid}/smaps`, "utf8").matchAll(/anon_inode:bpf-map\n(?:.*\n)*?Rss:\s+(\d+) kB/g);
  const mapped = [...maps].reduce((sum, [, size]) => sum + Number(size), 0);
  const residentMB = ((Number(resident) - mapped) * 1024) / 1e6;
  return { cpuS: (Number(fields[11]) + Number(fields[12])) / 100, residentMB };
}
