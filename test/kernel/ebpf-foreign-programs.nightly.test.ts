import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { named, together, web } from "../scenario/build.ts";
import { nodePort } from "../scenario/everywhere.ts";
import { addressOf, clusterIP, n1, pod, type Sender } from "../scenario/packet.ts";
import { type Family, families, hosts } from "../scenario/places.ts";
import { type KpngEbpf, kpngEbpf } from "./backend/kpng-proxy.ts";
import type { ForeignProgram } from "./laboratory/attach-foreign.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { ForeignPrograms } from "./laboratory/foreign-programs.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;

const ports = [{ port: 80, nodePort: nodePort.port }];
const state = together(
  web({ ports }, ["b", "c"]),
  named("denied", { number: 12 }, ["b"]),
  named("theirs", { number: 13 }, ["b"]),
);
const vipOf = (name: string, family: Family): string => addressOf(state, clusterIP(name), family);
/** An address of no Service, which a foreign program leads to Service "web". */
const led = { v4: "10.96.0.99", v6: "fd00:10:96::99" } as const;

/** Programs at a hook of one family that deny and rewrite, as policies and other service proxies do. */
const socketPrograms = (hook: string, family: Family): readonly ForeignProgram[] => [
  { does: "deny", hook, address: vipOf("denied", family) },
  { does: "deny", hook, address: hosts.c[family] },
  { does: "rewrite", hook, address: vipOf("theirs", family), to: hosts.d[family], port: 8080 },
  { does: "rewrite", hook, address: led[family], to: vipOf("web", family), port: 80 },
];

/** Connects once, and prints who answers, or which error there is. */
const client = `const [host] = process.argv.slice(1);
const end = (said) => { console.log(said); process.exit(); };
const socket = require("node:net").connect({ host, port: 80 });
socket.on("data", (text) => end(JSON.parse(String(text)).name));
socket.on("error", ({ code }) => end(code));`;

describe.skipIf(whyNot !== undefined)(`kpng-ebpf beside BPF programs of others${note}`, () => {
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
  let world: TwoNodes;
  let backend: KpngEbpf;
  let foreign: ForeignPrograms;

  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngEbpf(world, { args: ["--sockets", "all"] });
    foreign = await ForeignPrograms.open(world.laboratory, "n1");
    await backend.start({}, state);
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  /** Returns who answers connections, and how others end. */
  async function outcomes(from: Sender, address: string): Promise<string> {
    const target = { protocol: "tcp", address, port: 80, atOnce: 16, atMost: 48, wanted: 2, timeoutMs: 3_000 } as const;
    const source = from.kind === "outside" ? from.address[address.includes(":") ? "v6" : "v4"] : undefined;
    const answers = await world.agentOf(from).send({ kind: "ask", ...target, from: source });
    const said = answers.map((answer) =>
      answer.kind === "answer" ? answer.name : answer.kind === "error" ? answer.code : answer.kind,
    );
    return [...new Set(said)].sort().join();
  }

  /** The same for a process of pod a in a cgroup. */
  async function outcomeIn(cgroup: string, address: string): Promise<string> {
    const enter = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', cgroup];
    const said = await world.laboratory.run("a", [...enter, process.execPath, "-e", client, address]);
    return said.trim();
  }

  async function stopAndCleanUp(): Promise<void> {
    await backend.stop();
    await backend.cleanUp();
  }

  describe("at sockets", () => {
    /** Attaches programs to all hooks that choose a destination; half of them without links. */
    async function attachAll(): Promise<readonly (() => Promise<void>)[]> {
      const removals: (() => Promise<void>)[] = [];
      for (const family of families) {
        const hook = family === "v4" ? "connect4" : "connect6";
        const how = family === "v4" ? "link" : "multi";
        for (const program of socketPrograms(hook, family)) {
          const pin = await foreign.attach(program, { cgroup: backend.cgroup, how });
          removals.push(() => (how === "link" ? foreign.remove([pin]) : foreign.detach(pin, hook, backend.cgroup)));
        }
      }
      return removals;
    }

    async function expectOutcomes(of: (address: string) => Promise<string>, wanted: object) {
      const found = await Promise.all(
        families.map(async (family) => ({
          web: await of(vipOf("web", family)),
          denied: await of(vipOf("denied", family)),
          theirs: await of(vipOf("theirs", family)),
          led: "led" in wanted ? await of(led[family]) : undefined,
        })),
      );
      expect(found, backend.log()).toEqual([
        { led: undefined, ...wanted },
        { led: undefined, ...wanted },
      ]);
    }

    async function expectEverywhere(wanted: object): Promise<void> {
      for (const from of [pod("a"), n1]) await expectOutcomes((address) => outcomes(from, address), wanted);
    }

    test("programs before ours see the Service: the first that rewrites wins, and each may deny", async () => {
      await stopAndCleanUp();
      const removals = await attachAll();
      await backend.start({}, state);
      for (const hook of ["connect4", "connect6"]) {
        expect(await foreign.atCgroup(backend.cgroup, hook)).toEqual([...Array(4).fill("foreign"), hook]);
      }
      await expectEverywhere({ web: "b,c", denied: "EPERM", theirs: "d", led: "b,c" });
      for (const remove of removals) await remove();
      await expectEverywhere({ web: "b,c", denied: "b", theirs: "b" });
    });

    test("programs after ours see the endpoint", async () => {
      const removals = await attachAll();
      expect(await foreign.atCgroup(backend.cgroup, "connect4")).toEqual(["connect4", ...Array(4).fill("foreign")]);
      await expectEverywhere({ web: "EPERM,b", denied: "b", theirs: "b" });
      for (const remove of removals) await remove();
    });

    test("programs of a group below see the Service, whenever they were attached", async () => {
      const below = join(backend.cgroup, "below");
      mkdirSync(below);
      try {
        const denied = vipOf("denied", "v4");
        const program = { does: "deny", hook: "connect4", address: denied } as const;
        // In the group below, it need not permit others: ours, above it, does.
        await foreign.attach(program, { cgroup: below, how: "exclusive" });
        expect(await outcomeIn(below, denied)).toBe("EPERM");
        expect(await outcomeIn(below, vipOf("theirs", "v4"))).toBe("b");
        expect(await outcomeIn(backend.cgroup, denied)).toBe("b");
      } finally {
        rmdirSync(below);
      }
    });

    test("a restart keeps the place among others", async () => {
      const program = { does: "count", hook: "connect4", address: vipOf("web", "v4") } as const;
      const pin = await foreign.attach(program, { cgroup: backend.cgroup, how: "link" });
      const before = await foreign.atCgroup(backend.cgroup, "connect4");
      await backend.restart();
      expect(await foreign.atCgroup(backend.cgroup, "connect4")).toEqual(before);
      expect(before).toEqual(["connect4", "foreign"]);
      await foreign.remove([pin]);
    });
  });

  test("--cleanup leaves programs of others", async () => {
    const denied = vipOf("denied", "v4");
    const policies = ["link", "multi"] as const;
    for (const how of policies) {
      await foreign.attach({ does: "deny", hook: "connect4", address: denied }, { cgroup: backend.cgroup, how });
    }
    expect(await foreign.atCgroup(backend.cgroup, "connect4")).toEqual(["connect4", "foreign", "foreign"]);
    await stopAndCleanUp();
    expect(await foreign.atCgroup(backend.cgroup, "connect4")).toEqual(["foreign", "foreign"]);
    expect(await foreign.atCgroup(backend.cgroup, "getpeername6")).toEqual([]);
    // They still do what they did.
    expect(await outcomes(pod("a"), denied)).toBe("EPERM");
  });
});
