import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cgroupMount, mountBpf } from "@kpng/laboratory/check/node-cgroup.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { describeBpf } from "./describe-bpf.ts";
import { useLaboratory } from "./describe-packets.ts";

const seed = Number(process.env.KPNG_RACE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const program = fileURLToPath(new URL("laboratory/ebpf-races.ts", import.meta.url));

describeBpf(`programs of kpng-ebpf that run while maps change, seed ${seed}`, () => {
  vi.setConfig({ testTimeout: 120_000 });
  const cgroup = join(cgroupMount() ?? "", `kpng-test-races-${process.pid}`);
  // Hooks after tests run in reverse order: the laboratory ends before its cgroup is removed.
  afterAll(() => rmdirSync(cgroup));
  const laboratory = useLaboratory("node");
  beforeAll(async () => {
    await laboratory().run("node", ["ip", "address", "add", "10.200.0.1/32", "dev", "lo"]);
    await mountBpf(laboratory(), "node");
    mkdirSync(cgroup);
  });

  const run = (what: string, ...flags: readonly string[]): Promise<string> =>
    laboratory().run("node", [process.execPath, ...flags, program, what, cgroup, String(seed)]);

  test("programs are loaded although signals interrupt the kernel's verifier", async () => {
    // The profiler of V8 sends a signal with each sample.
    const flags = ["--cpu-prof", "--cpu-prof-interval", "100000", "--cpu-prof-dir", laboratory().folder];
    expect(await run("load", ...flags)).toBe("loaded");
  });

  test("a restart replaces the programs of the earlier run also on a node without IPv6", async () => {
    const changes = (await run("restart")).split("\n");
    expect(changes).toEqual(
      ["connect4", "connect6", "getpeername4", "getpeername6"].map((name) => `program ${name} replaced`),
    );
  });

  test("what a program may still read is kept until a grace period has passed, and used for others then", async () => {
    expect(JSON.parse(await run("hold"))).toEqual({ isKept: true, isReused: true });
  });

  test("each connection gets an endpoint of its Service, or none, whatever is replaced", async () => {
    const byPort: Record<string, number> = JSON.parse(await run("connect"));
    process.stdout.write(`seed ${seed}: connections by port ${JSON.stringify(byPort)}\n`);
    const ports = Array.from({ length: 9 }, (_, at) => String(8_010 + at));
    expect(Object.keys(byPort).sort()).toEqual([...ports, "none"].sort());
  });
});
