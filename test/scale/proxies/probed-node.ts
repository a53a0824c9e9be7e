import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { type ProcessUsage, usageOf } from "../proc.ts";
import { bundled } from "../processes.ts";

/** Counts of the traffic to a Service that does not change; see `node-probe.ts`. */
export interface ProbedTraffic {
  readonly connections: number;
  readonly failed: number;
  readonly slowestMs: number;
  readonly sent: number;
  readonly lost: number;
}

/** Address of the probe's server, the endpoint of the Service that does not change. */
export const probedEndpoint = "10.255.0.1";

/**
 * A network namespace with kpng-nft and the probe. The benchmarks `nft-load` and `nft-patch` change a beacon Service,
 * and ask when the change was in the kernel.
 */
export class ProbedNode {
  readonly #laboratory: Laboratory;
  readonly #backend: ChildProcess;
  readonly #probe: ChildProcess;
  readonly #seenMs = new Map<number, number>();
  #newest = -1;
  #traffic: ProbedTraffic | undefined;

  private constructor(laboratory: Laboratory, backend: ChildProcess, probe: ChildProcess) {
    this.#laboratory = laboratory;
    this.#backend = backend;
    this.#probe = probe;
    backend.stderr?.on("data", (data) => process.stderr.write(data));
    probe.stderr?.on("data", (data) => process.stderr.write(data));
    if (probe.stdout === null) throw new Error("the probe has no output");
    createInterface({ input: probe.stdout }).on("line", (line) => {
      const told = JSON.parse(line);
      if (told.beacon === undefined) this.#traffic = told;
      else {
        this.#newest = told.beacon;
        this.#seenMs.set(told.beacon, told.atMs);
      }
    });
  }

  /** Starts both. With `service`, the cluster IP of a Service at port 80, the probe sends traffic to it. */
  static async start(api: string, nodeName: string, service?: string): Promise<ProbedNode> {
    const laboratory = await Laboratory.open();
    await laboratory.add("node");
    const commands = [
      "ip link set lo up",
      `ip addr add ${probedEndpoint}/32 dev lo`,
      "ip route add 172.16.0.0/12 dev lo",
    ];
    await laboratory.run("node", ["sh", "-c", commands.join(" && ")]);
    const backend = laboratory.start("node", [
      ...[
        process.execPath,
        bundled("kpng-nft"),
        "--api",
        api,
        "--node-name",
        nodeName,
        "--state-dir",
        "none",
        "--log-level",
        "error",
      ],
      ...["--cluster-cidr", "10.0.0.0/8", "--metrics-bind-address", "127.0.0.1:10249"],
    ]);
    const probe = join(import.meta.dirname, "node-probe.ts");
    const traffic = service === undefined ? [] : [service, "80"];
    return new ProbedNode(laboratory, backend, laboratory.start("node", [process.execPath, probe, ...traffic]));
  }

  /** Time of the first sight of this or a later number of the beacon, by `monotonicMs`; undefined if not in time. */
  async seen(beacon: number, limitMs: number): Promise<number | undefined> {
    const deadlineMs = performance.now() + limitMs;
    while (this.#newest < beacon) {
      if (performance.now() > deadlineMs) return undefined;
      await sleep(2);
    }
    return this.#seenMs.get(beacon) ?? this.firstSeenFrom(beacon);
  }

  /** Like {@link seen}, of numbers that were seen already. */
  firstSeenFrom(beacon: number): number | undefined {
    const later = [...this.#seenMs].filter(([number]) => number >= beacon).map(([, atMs]) => atMs);
    return later.length === 0 ? undefined : Math.min(...later);
  }

  /** Usage of kpng-nft. */
  get usage(): ProcessUsage {
    const pid = this.#backend.pid ?? 0;
    const [child = pid] = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")
      .split(" ")
      .filter(Boolean)
      .map(Number);
    return usageOf(child);
  }

  /** Begins to send traffic to the Service that does not change. */
  startTraffic(): void {
    this.#probe.stdin?.write("\n");
  }

  /** Ends the probe, and returns what it counted. */
  async traffic(): Promise<ProbedTraffic> {
    this.#probe.stdin?.end();
    for (let waits = 0; waits < 500 && this.#traffic === undefined; waits++) await sleep(20);
    if (this.#traffic === undefined) throw new Error("the probe did not report");
    return this.#traffic;
  }

  close(): Promise<void> {
    return this.#laboratory.close();
  }
}
