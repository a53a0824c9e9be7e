import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, clusterIP } from "@kpng/laboratory/scenario/packet.ts";
import { beforeAll, expect, test, vi } from "vitest";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";
import { ForeignPrograms } from "./laboratory/foreign-programs.ts";
import { useProxy } from "./use-proxy.ts";

const state = web({}, ["b", "c"]);

describeBpf("kpng-ebpf beside BPF programs of others", () => {
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
  const { world, proxy: backend } = useProxy((nodes) => kpngEbpf(nodes, { args: ["--sockets", "all"] }));
  let foreign: ForeignPrograms;
  let cgroup: string;

  beforeAll(async () => {
    foreign = await ForeignPrograms.open(world().laboratory);
    await backend().start({}, state);
    cgroup = backend().word("cgroup");
  });

  /** Returns who answers a connection of pod a from a cgroup, or its error. */
  async function outcomeIn(from: string): Promise<string> {
    const client = `require("node:net").connect({ host: process.argv[1], port: 80 })
      .on("data", (data) => { console.log(String(data)); process.exit(); })
      .on("error", ({ code }) => { console.log(code); process.exit(); });`;
    const enter = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', from];
    const target = addressOf(state, clusterIP("web"), "v4");
    return (await world().laboratory.run("a", [...enter, process.execPath, "-e", client, target])).trim();
  }

  /** Attaches two programs to the hook of each family, one of them without a link; returns a function that detaches. */
  async function attachAll(): Promise<() => Promise<void>> {
    const removals: (() => Promise<unknown>)[] = [];
    for (const hook of ["connect4", "connect6"])
      for (const how of ["link", "multi"] as const)
        removals.push(await foreign.attach({ hook, denies: false }, { cgroup, how }));
    return async () => {
      for (const remove of removals) await remove();
    };
  }

  test("programs stay in front of ours if they were there before, and behind it else, also after a restart", async () => {
    await backend().stop();
    await backend().cleanUp();
    const removeFirst = await attachAll();
    await backend().start({}, state);
    for (const hook of ["connect4", "connect6"])
      expect(await foreign.at(cgroup, hook)).toEqual(["foreign", "foreign", hook]);
    await removeFirst();
    const removeAll = await attachAll();
    for (const restart of [async () => undefined, () => backend().restart()]) {
      await restart();
      expect(await foreign.at(cgroup, "connect4")).toEqual(["connect4", "foreign", "foreign"]);
      expect(await outcomeIn(cgroup)).toMatch(/b|c/);
    }
    await removeAll();
  });

  test("a program of a group below denies, and need not permit others", async () => {
    const below = join(cgroup, "below");
    mkdirSync(below);
    try {
      await foreign.attach({ hook: "connect4", denies: true }, { cgroup: below, how: "exclusive" });
      expect(await outcomeIn(below)).toBe("EPERM");
      expect(await outcomeIn(cgroup)).toMatch(/b|c/);
    } finally {
      rmdirSync(below);
    }
  });

  test("--cleanup leaves programs of others, which still do what they did", async () => {
    const link = await foreign.attach({ hook: "connect4", denies: true }, { cgroup, how: "link" });
    const multi = await foreign.attach({ hook: "connect4", denies: false }, { cgroup, how: "multi" });
    expect(await foreign.at(cgroup, "connect4")).toEqual(["connect4", "foreign", "foreign"]);
    await backend().stop();
    await backend().cleanUp();
    expect(await foreign.at(cgroup, "connect4")).toEqual(["foreign", "foreign"]);
    expect(await foreign.at(cgroup, "getpeername6")).toEqual([]);
    expect(await outcomeIn(cgroup)).toBe("EPERM");
    await Promise.all([link(), multi()]);
  });

  test("a program that tolerates no other is named as the reason, and ours follows when it has gone", async () => {
    await backend().stop();
    await backend().cleanUp();
    const remove = await foreign.attach({ hook: "connect6", denies: false }, { cgroup, how: "exclusive" });
    const started = backend().start({}, state);
    await expect.poll(() => backend().log(), { timeout: 60_000 }).toMatch(/BPF_FAILED.*connect6 .*errno 1/);
    expect(await foreign.at(cgroup, "connect6")).toEqual(["foreign"]);
    await remove();
    await started;
    await expect.poll(() => foreign.at(cgroup, "connect6"), { timeout: 60_000 }).toEqual(["connect6"]);
  });
});
