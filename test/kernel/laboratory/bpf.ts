import { fileURLToPath } from "node:url";
import { cgroupMount, mountBpf } from "@kpng/laboratory/check/node-cgroup.ts";
import { Laboratory, LaboratoryUnavailable } from "@kpng/laboratory/laboratory.ts";

const probe = fileURLToPath(new URL("../../../services/backend-ebpf/src/testing/probe.ts", import.meta.url));

/** Returns why BPF programs cannot be loaded here, in the words of kpng-ebpf; undefined if they can. */
export async function whyNoBpf(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return "BPF needs root";
  const cgroup = cgroupMount();
  if (cgroup === undefined) return "cgroup version 2 is not mounted";
  let laboratory: Laboratory;
  try {
    laboratory = await Laboratory.open();
  } catch (error) {
    if (error instanceof LaboratoryUnavailable) return error.message;
    throw error;
  }
  try {
    await laboratory.add("probe");
    await mountBpf(laboratory, "probe");
    const said = await laboratory.run("probe", [process.execPath, probe, cgroup]);
    return said === "" ? undefined : said.trim();
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  } finally {
    await laboratory.close();
  }
}
