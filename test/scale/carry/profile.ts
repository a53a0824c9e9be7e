import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startKpng } from "./carriers.ts";

/** The parts of a V8 CPU profile that are read here. */
interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string };
  }[];
  readonly samples: readonly number[];
  /** In microseconds of the monotonic clock. */
  readonly startTime: number;
  /** Microseconds since the sample before. */
  readonly timeDeltas: readonly number[];
}

/**
 * Runs a load through kpng-userspace under V8's profiler. Returns the functions with the most time of their own, with
 * their share of the time that was not idle. *Shape:* `writeBuffer (net.js) 8 %`; `(program)` is native code, mostly
 * system calls.
 */
export async function profileOf(target: number, load: (port: number) => Promise<unknown>): Promise<readonly string[]> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-profile-"));
  const kpng = await startKpng(target, { nodeOptions: ["--cpu-prof", `--cpu-prof-dir=${folder}`] });
  const loadTime = Number(process.hrtime.bigint() / 1_000n);
  await load(kpng.port);
  // The profile is written at the end.
  await kpng.stop("SIGTERM");
  const [file = ""] = readdirSync(folder);
  const profile: CpuProfile = JSON.parse(readFileSync(join(folder, file), "utf8"));
  const names = new Map(profile.nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]));
  const times = new Map<string, number>();
  let time = profile.startTime;
  for (const [index, id] of profile.samples.entries()) {
    const delta = profile.timeDeltas[index] ?? 0;
    time += delta;
    const name = names.get(id) ?? "";
    // Without the start of the program.
    if (time >= loadTime) times.set(name, (times.get(name) ?? 0) + delta);
  }
  times.delete("(idle)");
  const total = times.values().reduce((sum, own) => sum + own, 0);
  const sorted = [...times].toSorted(([, one], [, other]) => other - one).slice(0, 12);
  return sorted.map(([name, own]) => `${name} ${Math.round((own / total) * 100)} %`);
}

function nameOf({ functionName, url }: CpuProfile["nodes"][number]["callFrame"]): string {
  const file = url.replace(/^.*[/:]/, "");
  return `${functionName || "anonymous"}${file === "" ? "" : ` (${file})`}`;
}
