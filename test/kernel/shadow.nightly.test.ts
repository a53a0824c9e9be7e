import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../cluster/until.ts";
import { programFile } from "../process/program-file.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { NodeProcess } from "./backend/node-process.ts";
import type { RunningBackend } from "./backends.ts";
import { describePackets } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";
import { state } from "./shadow-state.ts";

const backendMain = programFile("backend-iptables");
const watcherMain = pathToFileURL(programFile("cli"));

const whyNot = await whyNoKubeProxy();

/** Removes the rule that drops clients outside the source ranges. The order of kube-proxy's rules is random. */
const openFirewall =
  "iptables -D KUBE-PROXY-FIREWALL $(iptables -S KUBE-PROXY-FIREWALL | sed 1d | grep -n -m 1 -- '-p tcp' | cut -d: -f1)";

describePackets("kpng-iptables --shadow beside the real kube-proxy", () => {
  if (whyNot !== undefined) {
    test.skipIf(process.env.CI !== "true")(`can run (skipped: ${whyNot})`, () => expect.fail(whyNot));
    return;
  }
  let world: TwoNodes;
  let proxy: RunningBackend & { readonly kubeconfig: string };
  let watcher: Program;
  let socket: string;
  let tools: string;

  beforeAll(async () => {
    world = await buildTwoNodes();
    proxy = await kubeProxy(world);
    await proxy.start({}, state);
    socket = join(world.laboratory.folder, "shadow.sock");
    tools = await recordTools(join(world.laboratory.folder, "tools"));
    watcher = startProgram(watcherMain, [
      ...["kube", "--kubeconfig", proxy.kubeconfig, "to-api", "--listen", `unix://${socket}`],
    ]);
    await watcher.said("listening");
  });
  afterAll(async () => {
    watcher?.stop();
    await watcher?.ended;
    await proxy?.close();
    await world?.close();
  });

  /** Installs wrappers of the iptables commands that log their arguments before they run the command. */
  async function recordTools(folder: string): Promise<string> {
    await mkdir(folder);
    const names = ["iptables", "ip6tables"].flatMap((name) =>
      ["", "-nft", "-legacy"].flatMap((kind) => ["", "-save", "-restore"].map((what) => `${name}${kind}${what}`)),
    );
    for (const name of [...names, "nft", "ipset", "conntrack", "nfacct"]) {
      const path = join(folder, name);
      await writeFile(
        path,
        `#!/bin/sh\necho "${name} $*" >>${folder}/calls\nPATH=/usr/sbin:/sbin:/usr/bin:/bin exec ${name} "$@"\n`,
      );
      await chmod(path, 0o755);
    }
    return folder;
  }

  const command = (...options: readonly string[]): readonly string[] => [
    ...["env", `PATH=${tools}:${process.env.PATH}`, process.execPath, backendMain, "--api", `unix://${socket}`],
    ...["--node-name", "n1", "--cluster-cidr", "10.1.0.0/16,fd00:10:1::/48", "--shadow", ...options],
  ];

  async function compareOnce() {
    const { exitCode, stdout, stderr } = await world.laboratory.tryRun(
      "n1",
      command("--once", "--shadow-settle", "0s", "--output", "json"),
    );
    if (stdout === "") throw new Error(`the output is empty: ${stderr}`);
    return { exitCode, ...JSON.parse(stdout) };
  }

  /** Returns everything that shadow mode could change, without counters and times. */
  async function everything(): Promise<string> {
    const saved = Object.values(await world.rules()).join("\n");
    const listed = await world.laboratory.run("n1", ["nft", "-s", "list", "ruleset"]);
    const sysctls = await world.laboratory.run("n1", [
      ...["sh", "-c", "cd /proc/sys/net && cat ipv4/conf/all/route_localnet netfilter/nf_conntrack_max"],
    ]);
    return [saved.replace(/^#.*$/gm, "").replace(/\[\d+:\d+\]/g, ""), listed, sysctls].join("\n");
  }

  test("finds no difference if both serve the same Services, and changes nothing", async () => {
    const before = await everything();
    const { exitCode, differences, appeared, services, packets } = await compareOnce();
    expect({ exitCode, differences, appeared }).toEqual({ exitCode: 0, differences: 0, appeared: [] });
    // Five Services, the marker, and the API server's own one.
    expect(services).toBe(7);
    expect(packets).toBeGreaterThan(100);
    expect(await everything()).toBe(before);
  });

  test("runs only iptables-save and --version", async () => {
    await compareOnce();
    const calls = (await readFile(join(tools, "calls"), "utf8")).trimEnd().split("\n");
    expect(calls.length).toBeGreaterThan(3);
    expect(calls.filter((call) => !/^ip6?tables(-nft|-legacy)?(-save *| --version)$/.test(call))).toEqual([]);
  });

  const breaks: readonly {
    readonly name: string;
    readonly spoil: string;
    /** Expected fields of one of the differences. */
    readonly told: Readonly<Record<string, unknown>>;
  }[] = [
    {
      name: "missing endpoints",
      spoil: `iptables -t nat -F $(iptables-save -t nat | sed -n 's/^-A KUBE-SERVICES.*web:p80-tcp cluster IP.*-j //p')`,
      told: { servicePort: "default/web:p80-tcp", address: "10.96.0.11", port: 80, kubeProxy: ["no rule"] },
    },
    {
      name: "an ignored source range",
      spoil: openFirewall,
      told: { servicePort: "default/balanced:p80-tcp", address: "198.51.100.10", kpng: ["dropped"] },
    },
    {
      name: "a Service without endpoints that is not rejected, IPv6",
      spoil: "ip6tables -F KUBE-SERVICES",
      told: { servicePort: "default/none:p80-udp", protocol: "udp", address: "fd00:10:96::12", kpng: ["refused"] },
    },
    {
      name: "a closed health-check port",
      spoil: "iptables -F KUBE-NODEPORTS",
      told: { servicePort: "default/kept", port: 30_100, kubeProxy: ["no rule"], kpng: ["let in"] },
    },
    {
      name: "a client that is not masqueraded",
      spoil: "iptables -t nat -F KUBE-MARK-MASQ",
      told: { servicePort: "default/kept:p80-tcp", address: "10.96.0.14", sender: "outside" },
    },
    {
      name: "node ports that are not served",
      spoil: "iptables -t nat -D KUBE-SERVICES $(iptables -t nat -S KUBE-SERVICES | wc -l | awk '{print $1 - 1}')",
      told: {
        servicePort: "default/balanced:p80-udp",
        addressKind: "node port",
        address: "192.0.2.1",
        kubeProxy: ["no rule"],
      },
    },
    {
      name: "a different affinity time",
      spoil: `iptables-save -t nat | sed 's/--seconds 600/--seconds 60/' | iptables-restore -T nat`,
      told: { servicePort: "default/web:p80-udp", sender: "pod" },
    },
    {
      name: "a Service that only kube-proxy has",
      spoil:
        "iptables -t nat -I KUBE-SERVICES -d 10.96.0.99 -p tcp --dport 80 -m comment --comment 'default/old:p80 cluster IP' -j DNAT --to-destination 10.1.1.11:80",
      told: { servicePort: "default/old:p80", addressKind: "address", kubeProxy: ["10.1.1.11:80"], kpng: ["no rule"] },
    },
    {
      name: "a rule that the tracer does not understand",
      spoil: "iptables -t nat -I KUBE-SERVICES -d 10.96.0.15 -m length --length 0:40 -j RETURN",
      told: { servicePort: "default/inside:p80-tcp", kubeProxy: [expect.stringContaining("--length")] },
    },
  ];

  test.each(breaks)("reports $name, with the Service and the packet", async ({ spoil, told }) => {
    const saved = await world.rules();
    await world.laboratory.run("n1", ["sh", "-c", spoil]);
    const { exitCode, appeared } = await compareOnce();
    await world.laboratory.run("n1", ["iptables-restore"], saved.v4);
    await world.laboratory.run("n1", ["ip6tables-restore"], saved.v6);
    expect(appeared).toContainEqual(expect.objectContaining(told));
    expect(exitCode).toBe(1);
    expect((await compareOnce()).exitCode).toBe(0);
  });

  test("reports new and resolved differences while it runs, also in metrics, and summarizes them at the end", async () => {
    const shadow = new NodeProcess(world.laboratory);
    shadow.start(
      command("--shadow-interval", "100ms", "--shadow-settle", "0s", "--metrics-bind-address", "127.0.0.1:9100"),
    );
    const says = (pattern: RegExp) =>
      until(
        String(pattern),
        () => pattern.test(shadow.output),
        20_000,
        () => shadow.log(),
      );
    const ask = (path: string) =>
      world.laboratory.run("n1", [
        ...[process.execPath, "-e"],
        `fetch("http://127.0.0.1:9100${path}").then(async (r) => process.stdout.write(r.status + " " + await r.text()))`,
      ]);
    await says(/Z {2}no difference: \d+ packets of 7 Services compared\n/);
    expect(await ask("/metrics")).toContain('kpng_shadow_differences{ip_family="IPv4"} 0');
    await world.laboratory.run("n1", ["sh", "-c", openFirewall]);
    await says(
      /\n\+ +default\/balanced:p80-tcp +load-balancer IP 198\.51\.100\.10:80\/tcp +pod \S+ +no rule +dropped\n/,
    );
    expect(await ask("/metrics")).toMatch(/kpng_shadow_differences\{ip_family="IPv4"\} [1-9]/);
    // A difference is a result of shadow mode, not a failure.
    expect(await ask("/healthz")).toMatch(/^200 /);
    expect(await ask("/readyz")).toMatch(/^200 /);
    const rule = "-d 198.51.100.10/32 -p tcp --dport 80 -j DROP";
    await world.laboratory.run("n1", ["iptables", "-A", "KUBE-PROXY-FIREWALL", ...rule.split(" ")]);
    await says(/\n- +default\/balanced:p80-tcp +load-balancer IP 198\.51\.100\.10:80\/tcp/);
    await shadow.stop();
    expect(shadow.output).toMatch(/Z {2}end after \d+ looks in \d+ s: no difference now, \d+ told in all\n/);
  });

  test("reports that kube-proxy has no rules", async () => {
    await world.laboratory.add("empty");
    const { exitCode, stderr } = await world.laboratory.tryRun("empty", command("--once"));
    expect(exitCode).toBe(2);
    expect(stderr).toContain("[NO_KUBE_PROXY]");
  });
});
