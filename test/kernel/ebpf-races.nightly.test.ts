import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { cgroupMount, mountBpf, whyNoBpf } from "./laboratory/bpf.ts";
import type { SeenConnections } from "./races/connect-during-changes.ts";
import type { HeldReader } from "./races/hold-reader.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;
const seed = Number(process.env.KPNG_RACE_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** KPNG_RACE_CHANGES sets another number; each thousand, the programs are replaced. */
const changes = Number(process.env.KPNG_RACE_CHANGES ?? 6_000);
const program = (name: string): string => fileURLToPath(new URL(`races/${name}.ts`, import.meta.url));

describe.skipIf(whyNot !== undefined)(`programs of kpng-ebpf that run while maps change, seed ${seed}${note}`, () => {
  vi.setConfig({ testTimeout: 300_000 });
  let laboratory: Laboratory;
  let bpf: string;
  let cgroup: string;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await laboratory.add("node");
    bpf = await mountBpf(laboratory, "node");
    cgroup = join(cgroupMount() ?? "", `kpng-test-races-${process.pid}`);
    mkdirSync(cgroup);
  });
  afterAll(async () => {
    await laboratory?.close();
    if (cgroup !== undefined) rmdirSync(cgroup);
  });

  test("what a program may still read is kept until it has ended, and used for others then", async () => {
    const found: HeldReader = JSON.parse(await laboratory.run("node", [process.execPath, program("hold-reader"), bpf]));
    expect(found).toEqual({
      ...{ isRunning: true, isWaiting: true, isRunKept: true, isSlotKept: true },
      ...{ isRunReused: true, isSlotReused: true },
    });
  });

  test("programs are loaded although signals interrupt the kernel's verifier", async () => {
    // The profiler of V8 sends a signal with each sample.
    const flags = ["--cpu-prof", "--cpu-prof-interval", "100000", "--cpu-prof-dir", laboratory.folder];
    const words = [process.execPath, ...flags, program("load-often"), bpf, cgroup];
    expect(await laboratory.run("node", words)).toBe("loaded");
  });

  test("each connection gets an endpoint of its Service, or is refused, whatever is replaced", async () => {
    const words = [program("connect-during-changes"), bpf, cgroup, String(seed), String(changes)];
    const { byLastByte, replacements }: SeenConnections = JSON.parse(
      await laboratory.run("node", [process.execPath, ...words]),
    );
    process.stdout.write(`seed ${seed}: connections by last byte ${JSON.stringify(byLastByte)}\n`);
    const allowed = ["refused", ...Array.from({ length: 9 }, (_, at) => String(at + 1))];
    expect(Object.keys(byLastByte).sort(), JSON.stringify(byLastByte)).toEqual(allowed.sort());
    expect(replacements).toBe(Math.floor(changes / 1_000));
  });
});
