import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { buildTwoNodes, type TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { named, together, web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, clusterIP, n1, pod, type Sender } from "@kpng/laboratory/scenario/packet.ts";
import { type Family, families, hosts } from "@kpng/laboratory/scenario/places.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";
import { type ForeignProgram, ForeignPrograms } from "./laboratory/foreign-programs.ts";

const state = together(
  web({}, ["b", "c"]),
  named("denied", { number: 12 }, ["b"]),
  named("theirs", { number: 13 }, ["b"]),
);
const vipOf = (name: string, family: Family): string => addressOf(state, clusterIP(name), family);
/** An address of no Service, which a foreign program leads to Service "web". */
const led = { v4: "10.96.0.99", v6: "fd00:10:96::99" } as const;

/** Programs of one family that deny and rewrite, as policies and other service proxies do. */
const programsOf = (hook: string, family: Family): readonly ForeignProgram[] => [
  { hook, address: vipOf("denied", family) },
  { hook, address: hosts.c[family] },
  { hook, address: vipOf("theirs", family), to: { address: hosts.d[family], port: 8080 } },
  { hook, address: led[family], to: { address: vipOf("web", family), port: 80 } },
];

describeBpf("kpng-ebpf beside BPF programs of others", () => {
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
  let world: TwoNodes;
  let backend: CommandProxy;
  let foreign: ForeignPrograms;

  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngEbpf(world, { args: ["--sockets", "all"] });
    foreign = await ForeignPrograms.open(world.laboratory);
    await backend.start({}, state);
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  /** Returns who answers connections, and how others end. */
  async function outcomes(from: Sender, address: string): Promise<string> {
    const target = { protocol: "tcp", address, port: 80, atOnce: 16, atMost: 48, wanted: 2, timeoutMs: 3_000 } as const;
    const answers = await world.agentOf(from).send({ kind: "ask", ...target });
    const said = answers.map((answer) =>
      answer.kind === "answer" ? answer.name : answer.kind === "error" ? answer.code : answer.kind,
    );
    return [...new Set(said)].sort().join();
  }

  /** Returns the error of a connection of pod a from a cgroup; "" without one. */
  async function errorIn(cgroup: string, address: string): Promise<string> {
    const client = `require("node:net").connect({ host: process.argv[1], port: 80 })
      .on("data", () => process.exit()).on("error", ({ code }) => { console.log(code); process.exit(); });`;
    const enter = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', cgroup];
    return (await world.laboratory.run("a", [...enter, process.execPath, "-e", client, address])).trim();
  }

  /** Attaches programs of both families, half of them without links; returns a function that detaches them. */
  async function attachAll(): Promise<() => Promise<void>> {
    const removals: (() => Promise<unknown>)[] = [];
    for (const family of families) {
      const how = family === "v4" ? "link" : "multi";
      for (const program of programsOf(`connect${family[1]}`, family))
        removals.push(await foreign.attach(program, { cgroup: backend.word("cgroup"), how }));
    }
    return async () => {
      for (const remove of removals) await remove();
    };
  }

  async function expectEverywhere(wanted: Readonly<Record<string, string>>): Promise<void> {
    for (const from of [pod("a"), n1]) {
      for (const family of families) {
        const found = Object.keys(wanted).map(async (name) => {
          const address = name === "led" ? led[family] : vipOf(name, family);
          return [name, await outcomes(from, address)] as const;
        });
        expect(Object.fromEntries(await Promise.all(found)), backend.log()).toEqual(wanted);
      }
    }
  }

  test("programs before ours see the Service: the first that rewrites wins, and each may deny", async () => {
    await backend.stop();
    await backend.cleanUp();
    const removeAll = await attachAll();
    await backend.start({}, state);
    for (const hook of ["connect4", "connect6"])
      expect(await foreign.at(backend.word("cgroup"), hook)).toEqual([...Array(4).fill("foreign"), hook]);
    await expectEverywhere({ web: "b,c", denied: "EPERM", theirs: "d", led: "b,c" });
    await removeAll();
    await expectEverywhere({ web: "b,c", denied: "b", theirs: "b" });
  });

  test("programs after ours see the endpoint, and a restart keeps the place", async () => {
    const removeAll = await attachAll();
    for (const restart of [async () => undefined, () => backend.restart()]) {
      await restart();
      expect(await foreign.at(backend.word("cgroup"), "connect4")).toEqual(["connect4", ...Array(4).fill("foreign")]);
      await expectEverywhere({ web: "EPERM,b", denied: "b", theirs: "b" });
    }
    await removeAll();
  });

  test("programs of a group below see the Service, whenever they were attached", async () => {
    const below = join(backend.word("cgroup"), "below");
    mkdirSync(below);
    try {
      const denied = vipOf("denied", "v4");
      // In the group below, it need not permit others: ours, above it, does.
      await foreign.attach({ hook: "connect4", address: denied }, { cgroup: below, how: "exclusive" });
      expect(await errorIn(below, denied)).toBe("EPERM");
      expect(await errorIn(below, vipOf("theirs", "v4"))).toBe("");
      expect(await errorIn(backend.word("cgroup"), denied)).toBe("");
    } finally {
      rmdirSync(below);
    }
  });

  test("--cleanup leaves programs of others, which still do what they did", async () => {
    const denied = vipOf("denied", "v4");
    for (const how of ["link", "multi"] as const)
      await foreign.attach({ hook: "connect4", address: denied }, { cgroup: backend.word("cgroup"), how });
    expect(await foreign.at(backend.word("cgroup"), "connect4")).toEqual(["connect4", "foreign", "foreign"]);
    await backend.stop();
    await backend.cleanUp();
    expect(await foreign.at(backend.word("cgroup"), "connect4")).toEqual(["foreign", "foreign"]);
    expect(await foreign.at(backend.word("cgroup"), "getpeername6")).toEqual([]);
    expect(await outcomes(pod("a"), denied)).toBe("EPERM");
  });

  test("a program that tolerates no other is named as the reason, and ours follows when it has gone", async () => {
    await backend.stop();
    await backend.cleanUp();
    const place = { cgroup: backend.word("cgroup"), how: "exclusive" } as const;
    const remove = await foreign.attach({ hook: "connect6", address: "fd00::1" }, place);
    const started = backend.start({}, state);
    await expect.poll(() => backend.log(), { timeout: 60_000 }).toMatch(/BPF_FAILED.*connect6 .*errno 1/);
    expect(await foreign.at(backend.word("cgroup"), "connect6")).toEqual(["foreign"]);
    await remove();
    await started;
    await expect.poll(() => foreign.at(backend.word("cgroup"), "connect6"), { timeout: 60_000 }).toEqual(["connect6"]);
  });
});
