import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { afterEach, expect, test } from "vitest";
import { programFile } from "../process/program-file.ts";
import { type KubeProxyMode, kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import type { RunningBackend } from "./backends.ts";
import { describePackets } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";
import { state } from "./shadow-state.ts";

const backendMain = programFile("backend-nft");
const watcherMain = pathToFileURL(programFile("cli"));
const whyNot = await whyNoKubeProxy();

describePackets("kpng-nft --shadow beside the real kube-proxy", () => {
  if (whyNot !== undefined) {
    test.skipIf(process.env.CI !== "true")(`can run (skipped: ${whyNot})`, () => expect.fail(whyNot));
    return;
  }
  let world: TwoNodes;
  let proxy: (RunningBackend & { readonly kubeconfig: string }) | undefined;
  let watcher: Program | undefined;

  afterEach(async () => {
    watcher?.stop();
    await watcher?.ended;
    await proxy?.close();
    await world?.close();
  });

  async function start(mode: KubeProxyMode): Promise<void> {
    world = await buildTwoNodes();
    proxy = await kubeProxy(world, undefined, mode);
    await proxy.start({}, state);
    const listen = `unix://${join(world.laboratory.folder, "shadow.sock")}`;
    watcher = startProgram(watcherMain, ["kube", "--kubeconfig", proxy.kubeconfig, "to-api", "--listen", listen]);
    await watcher.said("listening");
  }

  async function compareOnce() {
    const { exitCode, stdout, stderr } = await world.laboratory.tryRun("n1", [
      ...[process.execPath, backendMain, "--api", `unix://${join(world.laboratory.folder, "shadow.sock")}`],
      ...["--node-name", "n1", "--cluster-cidr", "10.1.0.0/16,fd00:10:1::/48", "--shadow", "--once"],
      ...["--nodeport-addresses", "0.0.0.0/0,::/0", "--shadow-settle", "0s", "--output", "json"],
    ]);
    if (stdout === "") throw new Error(`the output is empty: ${stderr}`);
    return { exitCode, ...JSON.parse(stdout) };
  }

  const ruleset = (): Promise<string> => world.laboratory.run("n1", ["nft", "-s", "list", "ruleset"]);

  test("in nftables mode it finds no difference, changes nothing, and reports a map that lost an element", async () => {
    await start("nftables");
    const before = await ruleset();
    const { exitCode, differences, appeared, packets, services } = await compareOnce();
    expect({ exitCode, differences, appeared }).toEqual({ exitCode: 0, differences: 0, appeared: [] });
    // Five Services, the marker, and the API server's own one.
    expect(services).toBe(7);
    expect(packets).toBeGreaterThan(100);
    expect(await ruleset()).toBe(before);
    await world.laboratory.run("n1", [
      ...["nft", "delete", "element", "ip", "kube-proxy", "service-ips", "{ 10.96.0.11 . tcp . 80 }"],
    ]);
    const broken = await compareOnce();
    expect(broken.exitCode).toBe(1);
    const told = { servicePort: "default/web:p80-tcp", address: "10.96.0.11", port: 80, kubeProxy: ["refused"] };
    expect(broken.appeared).toContainEqual(expect.objectContaining(told));
  });

  test("in iptables mode it reports what nftables mode does differently", async () => {
    await start("iptables");
    const { exitCode, appeared } = await compareOnce();
    expect(exitCode).toBe(1);
    type Sides = Readonly<Record<"kubeProxy" | "kpng", readonly string[]>>;
    const kinds = appeared.map(({ kubeProxy: theirs, kpng }: Sides) => [theirs, kpng].join(" / "));
    // Node ports at localhost lead to endpoints in iptables mode.
    const others = kinds.filter((kind: string) => !/:80\d\d/.test(kind));
    // Ports for health checks; unknown ports of cluster IPs.
    expect([...new Set(others)].sort()).toEqual(["let in / no rule", "no rule / refused"]);
  });
});
