import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { beforeAll, expect, test, vi } from "vitest";
import { Dice } from "../peer/kube-proxy/generate-pods.ts";
import { programFile } from "../process/program-file.ts";
import { describePackets, useLaboratory } from "./describe-packets.ts";
import { manyServices } from "./laboratory/many-services.ts";

const main = programFile("cli");
const seed = Number(process.env.KPNG_NFT_SEED ?? Math.floor(Math.random() * 2 ** 31));

// Each test starts the program up to six times.
vi.setConfig({ testTimeout: 120_000 });

const restrictedService = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { namespace: "restricted", name: "web" },
  spec: {
    type: "LoadBalancer",
    clusterIP: "10.97.0.1",
    clusterIPs: ["10.97.0.1"],
    loadBalancerSourceRanges: ["192.0.2.0/24"],
    ports: [{ protocol: "TCP", port: 80, targetPort: 8080 }],
  },
  status: { loadBalancer: { ingress: [{ ip: "198.51.100.1" }] } },
};

describePackets(`the commands of kpng-nft, seed ${seed}`, () => {
  const laboratory = useLaboratory("printed", "installed", "without");
  let path: string;
  beforeAll(async () => {
    path = join(laboratory().folder, "state.json");
    const state = JSON.parse(manyServices(80, new Dice(seed)));
    await writeFile(path, JSON.stringify({ ...state, items: [...state.items, restrictedService] }));
  });

  const command = (...options: readonly string[]): readonly string[] => [
    ...[process.execPath, main, "file", "-i", path, "to-local", "to-nft", "--node-name", "n1", "--once"],
    ...["--cluster-cidr", "10.1.0.0/16", "--state-dir", "none", ...options],
  ];
  const kpng = (namespace: string, ...options: readonly string[]) =>
    laboratory().tryRun(namespace, command(...options));
  const tables = (namespace: string): Promise<string> => laboratory().run(namespace, ["nft", "list", "tables"]);

  test("--dry-run changes nothing, and nft installs from its output what --diff finds to be right", async () => {
    const printed = await kpng("printed", "--dry-run");
    expect(printed.exitCode, printed.stderr).toBe(0);
    expect(await tables("printed")).toBe("");
    // An empty table differs in everything.
    const before = await kpng("printed", "--diff");
    expect(before.exitCode, before.stderr).toBe(1);
    await laboratory().run("printed", ["nft", "-f", "-"], printed.stdout);
    const after = await kpng("printed", "--diff");
    expect({ exitCode: after.exitCode, stdout: after.stdout }, after.stderr).toMatchObject({ exitCode: 0 });
  });

  test("without koffi, the program says what is missing, and changes nothing", async () => {
    const koffi = dirname(createRequire(import.meta.url).resolve("koffi"));
    const { exitCode, stderr } = await laboratory().tryRun("without", [
      ...["unshare", "--mount", "sh", "-c", `mount -t tmpfs none ${koffi} && exec "$@"`, "sh"],
      ...command(),
    ]);
    expect(exitCode).toBe(1);
    expect(stderr).toContain("[NETLINK_UNAVAILABLE] the native module of koffi");
    expect(await tables("without")).toBe("");
  });

  test("--diff names a set that another program changed, the next start repairs it, and --cleanup leaves nothing", async () => {
    expect((await kpng("installed")).exitCode).toBe(0);
    expect((await kpng("installed", "--diff")).exitCode).toBe(0);
    await laboratory().run("installed", ["nft", "flush", "map", "ip", "kpng", "slots"]);
    const { exitCode, stdout } = await kpng("installed", "--diff");
    expect(exitCode).toBe(1);
    expect(stdout).toContain("set slots");
    expect((await kpng("installed")).exitCode).toBe(0);
    expect((await kpng("installed", "--diff")).exitCode).toBe(0);
    await laboratory().run("installed", ["nft", "add", "table", "ip", "foreign"]);
    expect((await kpng("installed", "--cleanup")).exitCode).toBe(0);
    expect(await tables("installed")).toBe("table ip foreign\n");
  });

  test("--diff names chains of endpoint counts, of source ranges and of others that another program changed", async () => {
    expect((await kpng("installed")).exitCode).toBe(0);
    const { stdout: table } = await laboratory().tryRun("installed", ["nft", "list", "table", "ip", "kpng"]);
    const chains = [...table.matchAll(/chain ((?:pick|sticky|ranges)_\S+)/g)].map(([, name = ""]) => name);
    const ranges = chains.filter((name) => name.startsWith("ranges_"));
    expect(ranges.length).toBeGreaterThan(0);
    const changes = [
      ...chains.map((name) => (ranges.includes(name) ? `flush set ip kpng ${name}` : `flush chain ip kpng ${name}`)),
      "add chain ip kpng others",
      "add rule ip kpng others accept",
    ];
    await laboratory().run("installed", ["nft", "-f", "-"], `${changes.join("\n")}\n`);
    const { exitCode, stdout } = await kpng("installed", "--diff");
    expect(exitCode).toBe(1);
    const named = [...stdout.matchAll(/^v4 chain (\S+): rules differ$/gm)].map(([, name]) => name);
    expect(named.toSorted()).toEqual([...chains, "others"].toSorted());
    expect((await kpng("installed")).exitCode).toBe(0);
    expect((await kpng("installed", "--diff")).exitCode).toBe(0);
    expect((await kpng("installed", "--cleanup")).exitCode).toBe(0);
  });

  test("--cleanup deletes our table of one family although that of the other is not ours, and fails", async () => {
    expect((await kpng("installed")).exitCode).toBe(0);
    await laboratory().run("installed", ["nft", "delete chain ip kpng kpng_layout_1"]);
    const { exitCode, stderr } = await kpng("installed", "--cleanup");
    expect(exitCode).toBe(1);
    expect(stderr).toContain("[TABLE_NOT_OURS]");
    expect((await tables("installed")).split("\n").toSorted()).toEqual(["", "table ip foreign", "table ip kpng"]);
  });
});
