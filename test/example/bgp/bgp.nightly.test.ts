import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { WatcherStates } from "@kpng/laboratory/check/states.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { NodeProcess } from "@kpng/laboratory/node-process.ts";
import {
  draining,
  type EndpointOption,
  named,
  publicAddress,
  type State,
  together,
} from "@kpng/laboratory/scenario/build.ts";
import { buildSync } from "esbuild";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { bundleOptions } from "../../../deploy/images/bundle.ts";
import { describeWhere } from "../../cluster/describe-where.ts";
import { whyNoPackets } from "../../kernel/describe-packets.ts";
import { programFile } from "../../process/program-file.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000, expect: { poll: { timeout: 30_000 } } });

const bgpd = "/usr/lib/frr/bgpd";
// FRR changes to its own user.
const notRoot = process.getuid?.() === 0 ? undefined : "FRR needs root";
const whyNot = whyNoPackets ?? (existsSync(bgpd) ? notRoot : `no ${bgpd} (Debian package: frr)`);

describeWhere("load-balancer IPs, announced by BGP to a router", whyNot, () => {
  let laboratory: Laboratory;
  let states: WatcherStates;
  let announcer: NodeProcess;
  let folder: string;

  /** Starts FRR's daemon in a namespace, and returns the command of its vtysh. */
  function startFrr(name: string, config: string): string {
    const own = join(folder, name);
    mkdirSync(own);
    writeFileSync(join(own, "bgpd.conf"), config);
    writeFileSync(join(own, "vtysh.conf"), "");
    const id = (flag: string) => Number(execFileSync("id", [flag, "frr"]));
    for (const path of [own, ...["bgpd.conf", "vtysh.conf"].map((file) => join(own, file))]) {
      chownSync(path, id("-u"), id("-g"));
    }
    const options = ["-Z", "-f", join(own, "bgpd.conf"), "-i", join(own, "pid"), "--vty_socket", own, "-P", "0"];
    laboratory.start(name, [bgpd, ...options]);
    return `vtysh --vty_socket ${own} --config_dir ${own}`;
  }

  function startAnnouncer(): void {
    const options = ["--api", states.words.api ?? "", "--node-name", "n1", "--asn", "64512"];
    const vtysh = `vtysh --vty_socket ${folder}/n1 --config_dir ${folder}/n1`;
    announcer.start([process.execPath, join(folder, "main.mjs"), ...options, "--vtysh", vtysh]);
  }

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "kpng-bgp-"));
    chmodSync(folder, 0o755);
    const alias = { ...bundleOptions.alias, "@kpng/backend-kit": resolve("services/backend-kit/src/index.ts") };
    buildSync({ ...bundleOptions, alias, entryPoints: ["examples/bgp/main.ts"], outdir: folder });
    laboratory = await Laboratory.open();
    for (const name of ["lan", "n1", "router"]) await laboratory.add(name);
    const batch = `link add eth0 type veth peer name eth0 netns ${laboratory.path("router")}
address add 192.0.2.1/24 dev eth0
link set eth0 up
`;
    await laboratory.run("n1", ["ip", "-batch", "-"], batch);
    await laboratory.run("router", ["ip", "-batch", "-"], "address add 192.0.2.254/24 dev eth0\nlink set eth0 up\n");
    const of = (asn: number, peer: string, peerAsn: number) => `router bgp ${asn}
 bgp router-id 0.0.0.${asn - 64_511}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor ${peer} remote-as ${peerAsn}
 neighbor ${peer} timers connect 1
 neighbor ${peer} advertisement-interval 0
 address-family ipv6 unicast
  neighbor ${peer} activate
`;
    // Networks of other instances and families are not the announcer's.
    const foreign = "router bgp 64512 vrf red\n address-family ipv4 unicast\n  network 10.0.0.0/8\n";
    startFrr("n1", `${of(64_512, "192.0.2.254", 64_513)}${foreign}`);
    startFrr("router", of(64_513, "192.0.2.1", 64_512));
    states = await WatcherStates.start(laboratory, { kpng: [process.execPath, programFile("cli")] });
    announcer = new NodeProcess(laboratory);
    startAnnouncer();
  });
  afterAll(async () => {
    await announcer?.stop();
    await states?.close();
    await laboratory?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  /** What the router has learned. *Shape:* `198.51.100.10/32`, `198.51.100.10/32 graceful`. */
  async function learned(): Promise<readonly string[]> {
    const vtysh = ["vtysh", "--vty_socket", `${folder}/router`, "--config_dir", `${folder}/router`, "-c"];
    const ask = (command: string) => laboratory.run("router", [...vtysh, command]);
    const lines: string[] = [];
    for (const family of ["ipv4", "ipv6"]) {
      const { routes = {} } = JSON.parse(await ask(`show bgp ${family} unicast json`));
      for (const prefix of Object.keys(routes)) {
        const isGraceful = (await ask(`show bgp ${family} unicast ${prefix} json`)).includes("graceful");
        lines.push(isGraceful ? `${prefix} graceful` : prefix);
      }
    }
    return lines.sort();
  }

  const local = (...endpoints: readonly EndpointOption[]): State =>
    named("local", { loadBalancerIPs: [publicAddress(10)], external: "Local" }, endpoints);
  const anywhere = (...endpoints: readonly EndpointOption[]): State =>
    named("anywhere", { number: 12, loadBalancerIPs: [publicAddress(20)] }, endpoints);

  const ofLocal = ["198.51.100.10/32", "2001:db8:100::10/128"];
  const ofAnywhere = ["198.51.100.20/32", "2001:db8:100::20/128"];
  const steps: readonly (readonly [string, State, readonly string[]])[] = [
    [
      "with an endpoint on the node, and with one anywhere",
      together(local("a"), anywhere("c")),
      [...ofLocal, ...ofAnywhere],
    ],
    ["not without an endpoint on the node under policy Local", together(local("c"), anywhere("c")), ofAnywhere],
    ["again when there is one", together(local("a", "c"), anywhere("c")), [...ofLocal, ...ofAnywhere]],
    [
      "gracefully while the node's endpoints terminate",
      local(draining("a"), "c"),
      ofLocal.map((ip) => `${ip} graceful`),
    ],
    ["normally when one more is there", local(draining("a"), "b"), ofLocal],
    ["not when nothing serves", together(local(), anywhere()), []],
  ];
  test.each(steps)("%s", async (_, state, expected) => {
    await states.apply(state);
    await expect.poll(learned, { message: announcer.log() }).toEqual([...expected].sort());
  });

  test("what became wrong while the announcer was away is withdrawn when it starts", async () => {
    await states.apply(together(local("a"), anywhere("c")));
    await expect.poll(learned).toHaveLength(4);
    await announcer.stop("SIGKILL");
    await states.apply(anywhere("c"));
    expect(await learned()).toHaveLength(4);
    startAnnouncer();
    await expect.poll(learned).toEqual(ofAnywhere);
  });
});
