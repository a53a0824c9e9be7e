import { fileURLToPath } from "node:url";
import { cgroupMount, mountBpf } from "@kpng/laboratory/check/node-cgroup.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { describe } from "vitest";

const probe = fileURLToPath(new URL("../../services/backend-ebpf/src/testing/probe.ts", import.meta.url));

/** Why BPF programs cannot be loaded here, in the words of kpng-ebpf; undefined if they can. */
export const whyNoBpf = await findReason();

async function findReason(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return "BPF needs root";
  const cgroup = cgroupMount();
  if (cgroup === undefined) return "cgroup version 2 is not mounted";
  try {
    await using laboratory = await Laboratory.open();
    await laboratory.add("probe");
    await mountBpf(laboratory, "probe");
    return (await laboratory.run("probe", [process.execPath, probe, cgroup])).trim() || undefined;
  } catch (error) {
    return reasonOf(error);
  }
}

/**
 * Describes tests of BPF programs. Where none can be loaded they are skipped with the reason, also under CI=true: not
 * every machine grants the right.
 */
export function describeBpf(name: string, body: () => void): void {
  if (whyNoBpf === undefined) describe(name, body);
  else describe.skip(`${name} (skipped: ${whyNoBpf})`, () => undefined);
}
