import { once } from "node:events";
import { mkdirSync, readdirSync, rmdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { readEbpfSettings } from "@kpng/backend-ebpf/backend.ts";
import { BpfMap } from "@kpng/backend-ebpf/bpf/bpf-map.ts";
import { mapLayouts } from "@kpng/backend-ebpf/layout/layout.ts";
import { cgroupMount, mountBpf } from "@kpng/laboratory/check/node-cgroup.ts";
import { descendants } from "@kpng/laboratory/node-process.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Dice } from "../peer/kube-proxy/generate-pods.ts";
import { programFile } from "../process/program-file.ts";
import { describeBpf } from "./describe-bpf.ts";
import { useLaboratory } from "./describe-packets.ts";
import { killPoints, killSeed } from "./kill-points.ts";
import { manyServices } from "./laboratory/many-services.ts";

const main = programFile("cli");
const damage = fileURLToPath(new URL("../../services/backend-ebpf/src/testing/damage.ts", import.meta.url));
const linkModule = new URL("../../services/backend-ebpf/src/bpf/program.ts", import.meta.url).href;
const seed = killSeed;
const points = killPoints(3);
/** So many that a change of the maps takes longer than it takes to kill a process. */
const serviceCount = 500;

describeBpf(`the commands of kpng-ebpf, seed ${seed}`, () => {
  vi.setConfig({ testTimeout: 120_000 });
  const dice = new Dice(seed);
  const cgroup = join(cgroupMount() ?? "", `kpng-test-commands-${process.pid}`);
  // Hooks after tests run in reverse order: the laboratory ends before its cgroup is removed.
  afterAll(() => rmdirSync(cgroup));
  const open = useLaboratory("node");
  let laboratory: ReturnType<typeof open>;
  let bpf: string;
  let path: string;
  /** A process in the laboratory, whose mounts it shows. */
  let inside: number;
  beforeAll(async () => {
    laboratory = open();
    bpf = await mountBpf(laboratory, "node");
    // It echoes once it is in the namespaces of the laboratory.
    const stays = laboratory.start("node", ["cat"]);
    stays.stdin?.write("there\n");
    await once(stays.stdout ?? stays, "data");
    inside = stays.pid ?? 0;
    mkdirSync(cgroup);
    path = join(laboratory.folder, "state.json");
    await writeFile(path, manyServices(100, dice));
  });

  const command = (...options: readonly string[]): readonly string[] => [
    ...[process.execPath, main, "file", "-i", path, "to-local", "to-ebpf", "--node-name", "n1"],
    ...["--cluster-cidr", "10.1.0.0/16", "--state-dir", "none", "--cgroup", cgroup, ...options],
  ];
  const kpng = (...options: readonly string[]) => laboratory.tryRun("node", command("--once", ...options));
  const installed = async (): Promise<readonly string[]> => {
    const files = await laboratory.run("node", ["sh", "-c", `find ${bpf}/kpng-ebpf -type f 2>/dev/null || true`]);
    const tables = await laboratory.run("node", ["nft", "list", "tables"]);
    return [...files.split("\n"), ...tables.split("\n")].filter(Boolean);
  };

  test("where programs cannot be loaded, the reasons are listed, and nothing is left", async () => {
    const hidden = 'mount -t tmpfs none /sys/fs/bpf && exec "$@"';
    const inOther = ["unshare", "--mount", "sh", "-c", hidden, "kpng"];
    const { exitCode, stderr } = await laboratory.tryRun("node", [...inOther, ...command("--once")]);
    expect(exitCode, stderr).toBe(1);
    expect(stderr).toMatch(/BPF_UNSUPPORTED.* lacks: a BPF file system at /);
    expect(await laboratory.run("node", ["nft", "list", "tables"])).toBe("");
  });

  test("--dry-run prints frontends and changes nothing", async () => {
    const { exitCode, stdout, stderr } = await kpng("--dry-run");
    expect(exitCode, stderr).toBe(0);
    expect(stdout).toMatch(/^\+ TCP \S+:\d+ pod/m);
    expect(await installed()).toEqual([]);
  });

  test("after a sync --diff finds nothing, and a second sync changes nothing", async () => {
    expect(await kpng()).toMatchObject({ exitCode: 0 });
    expect(await kpng("--diff")).toMatchObject({ exitCode: 0, stdout: "no difference\n" });
    const again = await kpng("--log-level", "debug");
    expect(again.stderr).toContain('"written":0');
    expect(again.stderr).not.toMatch(/"written":[1-9]/);
    expect((await installed()).length).toBeGreaterThan(11);
  });

  test.each(["frontend", "route", "endpoint"])(
    "--diff notices that another program changed one %s, and the next start repairs it",
    async (kind) => {
      await laboratory.run("node", [process.execPath, damage, kind]);
      const { exitCode, stdout } = await kpng("--diff");
      expect(exitCode, stdout).toBe(1);
      expect(stdout).toMatch(/^v[46] TCP \S+:\d+: (missing|differs)$/m);
      expect(await kpng()).toMatchObject({ exitCode: 0 });
      expect(await kpng("--diff")).toMatchObject({ exitCode: 0 });
    },
  );

  test("a link that another program detached is missing although its file is there, --diff says so, and a start attaches it", async () => {
    const script = `import { isAttached } from ${JSON.stringify(linkModule)};
      console.log(isAttached(process.argv[1]));`;
    const command = [process.execPath, "--input-type=module", "-e", script, `${bpf}/kpng-ebpf/links/connect4`];
    const isAttached = async (): Promise<string> => (await laboratory.run("node", command)).trim();
    expect(await isAttached()).toBe("true");
    await laboratory.run("node", [process.execPath, damage, "link:connect4"]);
    expect(await isAttached()).toBe("false");
    const { exitCode, stdout } = await kpng("--diff");
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: "v4 no program is attached at connect4\n" });
    expect(await kpng()).toMatchObject({ exitCode: 0 });
    expect(await isAttached()).toBe("true");
  });

  const timeout = (points + 1) * 60_000;
  test("after each kill at a random moment, the next start leads to the maps of the view", { timeout }, async () => {
    const startedAt = performance.now();
    expect(await kpng()).toMatchObject({ exitCode: 0 });
    const startMs = performance.now() - startedAt;
    let interrupted = 0;
    for (let point = 0; point < points; point++) {
      await writeFile(path, manyServices(serviceCount, dice));
      const child = laboratory.start("node", command());
      const closed = once(child, "close");
      const slots = openSlots(inside, bpf);
      // Most of a start precedes the first write, so two of three kills wait for that.
      if (point % 3 === 0) await sleep(dice.number(0, Math.round(startMs)));
      else {
        await slots.untilChanged();
        await sleep(dice.number(0, 10));
      }
      killDescendants(child.pid ?? 0);
      await closed;
      const isChanged = slots.isChanged();
      slots.close();
      if (isChanged && (await kpng("--diff")).exitCode === 1) interrupted++;
      expect(await kpng(), `kill ${point}`).toMatchObject({ exitCode: 0 });
      expect(await kpng("--diff"), `kill ${point}`).toMatchObject({ exitCode: 0 });
    }
    process.stdout.write(`seed ${seed}: ${interrupted} of ${points} kills interrupted a change of the maps\n`);
    expect(interrupted).toBeGreaterThan(0);
  });

  test("a Service without room is left to the rules, and the next start has the room that removed ones leave", async () => {
    const write = (clusterIP: string): Promise<void> => {
      const labels = { "service.kubernetes.io/service-proxy-name": "full" };
      const metadata = { namespace: "full", name: `at-${clusterIP.replaceAll(".", "-")}`, labels };
      const spec = { clusterIP, clusterIPs: [clusterIP], ports: [{ protocol: "TCP", port: 80 }] };
      return writeFile(path, JSON.stringify({ apiVersion: "v1", kind: "Service", metadata, spec }));
    };
    const run = (...options: readonly string[]) =>
      kpng("--service-proxy-name", "full", "--max-frontends", "1", ...options);
    await write("10.96.0.1");
    expect(await run()).toMatchObject({ exitCode: 0 });
    await write("10.96.0.2");
    const { stderr, exitCode } = await run();
    expect(exitCode).toBe(0);
    expect(stderr).toContain("raise --max-frontends");
    expect(await run()).toMatchObject({ exitCode: 0 });
    expect(await run("--diff")).toMatchObject({ exitCode: 0 });
    expect(await run("--cleanup")).toMatchObject({ exitCode: 0 });
  });

  test("--cleanup leaves nothing, and succeeds where nothing is left", async () => {
    for (let run = 0; run < 2; run++) {
      const { exitCode, stderr } = await kpng("--cleanup");
      expect(exitCode, stderr).toBe(0);
      expect(await installed()).toEqual([]);
    }
  });
});

/** The slots of the maps as they are now; read beside the process. */
function openSlots(processId: number, bpf: string) {
  // The mount is visible to processes of the laboratory only.
  const folder = `/proc/${processId}/root${bpf}/kpng-ebpf`;
  const [version = ""] = readdirSync(folder).filter((name) => name.startsWith("maps-"));
  const layout = mapLayouts(readEbpfSettings({}, "").mapSizes).find(({ name }) => name === "slots");
  const map = layout === undefined ? undefined : BpfMap.open(layout, join(folder, version, "slots"));
  if (map === undefined) throw new Error(`no slots in ${folder}`);
  const before = Buffer.from(map.memory);
  const isChanged = (): boolean => !map.memory.equals(before);
  return {
    isChanged,
    untilChanged: async (): Promise<void> => {
      const deadline = performance.now() + 60_000;
      while (!isChanged() && performance.now() < deadline) await nextTurn();
    },
    close: () => map.close(),
  };
}

/** Kills the processes that a command started, which ends it, too. */
function killDescendants(id: number): void {
  for (const child of descendants(id).slice(1)) {
    try {
      process.kill(child, "SIGKILL");
    } catch {
      // It has ended.
    }
  }
}
