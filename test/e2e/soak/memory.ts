import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "../cluster/cluster.ts";
import type { Backend } from "../proxy/images.ts";
import { patternOf } from "../proxy/processes.ts";

/** Resident memory of a process at some times, in MiB. */
export interface MemoryCurve {
  /** "n3 kpng-nft". */
  readonly name: string;
  readonly atMs: readonly number[];
  readonly mebibytes: readonly number[];
}

/** Shorter lives say nothing about growth. */
const minimumLifeMs = 120_000;

/** Growth that noise explains: a garbage collection more or less. */
const allowed = { factor: 1.25, mebibytes: 10 };

/** How the memory of a process developed: the medians of its second and of its last quarter. */
export interface Growth {
  readonly name: string;
  readonly early: number;
  readonly late: number;
  readonly isFlat: boolean;
}

/** Returns the growth of a process; undefined if it did not live long enough. */
export function growthOf({ name, atMs, mebibytes }: MemoryCurve): Growth | undefined {
  const [start = 0, end = 0] = [atMs[0], atMs.at(-1)];
  if (end - start < minimumLifeMs) return undefined;
  const quarter = (number: number): number => {
    const [from, to] = [start + ((end - start) * number) / 4, start + ((end - start) * (number + 1)) / 4];
    return median(mebibytes.filter((_, index) => (atMs[index] ?? 0) >= from && (atMs[index] ?? 0) <= to));
  };
  const [early, late] = [quarter(1), quarter(3)];
  return { name, early, late, isFlat: late <= early * allowed.factor + allowed.mebibytes };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** Memory of the processes of kpng on all nodes, sampled until `stop`. Processes are told apart by node and id. */
export class MemorySampler {
  readonly #curves = new Map<string, { readonly atMs: number[]; readonly mebibytes: number[] }>();
  readonly #stopped = new AbortController();
  readonly #sampling: Promise<void>;

  constructor(nodes: Cluster["nodes"], backend: Backend) {
    this.#sampling = this.#sample(nodes, backend);
  }

  /** Ends the samples and returns a curve for each process, also for those that have ended. */
  async stop(): Promise<readonly MemoryCurve[]> {
    this.#stopped.abort();
    await this.#sampling;
    return [...this.#curves].map(([name, curve]) => ({ name, ...curve }));
  }

  async #sample(nodes: Cluster["nodes"], backend: Backend): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      for (const part of ["watcher", "backend"] as const) {
        for (const node of nodes) {
          const { stdout } = await node.run(["sh", "-c", listMemory, patternOf(part, backend)]);
          for (const line of stdout.split("\n").filter(Boolean)) this.#add(`${node.name} ${part}`, line);
        }
      }
      await sleep(intervalMs, undefined, { signal: this.#stopped.signal }).catch(() => undefined);
    }
  }

  /** `line`: process id and KiB. */
  #add(name: string, line: string): void {
    const [pid, kibibytes] = line.split(" ");
    const curve = getOrMake(this.#curves, `${name} (process ${pid})`);
    curve.atMs.push(performance.now());
    curve.mebibytes.push(Number(kibibytes) / 1024);
  }
}

const intervalMs = 5_000;
const listMemory = `for pid in $(pgrep --full "$0"); do
  echo $pid $(sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$pid/status); done`;

function getOrMake(
  curves: Map<string, { readonly atMs: number[]; readonly mebibytes: number[] }>,
  name: string,
): { readonly atMs: number[]; readonly mebibytes: number[] } {
  const curve = curves.get(name) ?? { atMs: [], mebibytes: [] };
  curves.set(name, curve);
  return curve;
}
