import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  addOptions,
  nodeNameOption,
  type OptionSpec,
  parseDurationMs,
  parseWholeNumber,
  repeatable,
  statusServerOptions,
} from "@kpng/process/options.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { Command } from "commander";
import { beforeEach, expect, test } from "vitest";
import { nodePortAddressesOption } from "../node-addresses/local-addresses.ts";
import { createReadableLog } from "../testing/steps.ts";
import { acceptConfigFile } from "./config-file.ts";

let folder = "";
beforeEach(() => {
  folder = temporaryFolder();
});

const options: readonly OptionSpec[] = [
  nodeNameOption,
  ...statusServerOptions,
  nodePortAddressesOption,
  repeatable("--cluster-cidr <cidrs>", ""),
  { flags: "--masquerade-all", description: "" },
  { flags: "--iptables-masquerade-bit <bit>", description: "", default: 14, parse: parseWholeNumber("bit", 0, 31) },
  { flags: "--iptables-localhost-nodeports <bool>", description: "", default: true, parse: (text) => text === "true" },
  { flags: "--iptables-min-sync-period <time>", description: "", default: 1_000, parse: parseDurationMs },
];

interface Outcome {
  readonly values: Readonly<Record<string, unknown>>;
  readonly warnings: readonly string[];
}

async function run(path: string, args: readonly string[] = [], proxyMode = "iptables"): Promise<Outcome> {
  const { log, lines } = createReadableLog();
  const command = addOptions(new Command(), options);
  acceptConfigFile(command, proxyMode, log);
  let values: Readonly<Record<string, unknown>> = {};
  command.action((parsed: Readonly<Record<string, unknown>>) => {
    values = parsed;
  });
  await command.parseAsync(["--config", path, ...args], { from: "user" });
  return { values, warnings: lines.map(({ field, reason }) => `${field}: ${reason}`) };
}

function runYaml(yaml: string, args: readonly string[] = [], proxyMode = "iptables"): Promise<Outcome> {
  const path = join(folder, "config.yaml");
  writeFileSync(path, `apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n${yaml}`);
  return run(path, args, proxyMode);
}

test("the file that kubeadm writes sets options, and its zero values keep the defaults", async () => {
  const { values, warnings } = await run(fileURLToPath(new URL("testing/kubeadm.yaml", import.meta.url)), [
    "--node-name",
    "n",
  ]);
  expect({ ...values, config: "" }).toEqual({
    config: "",
    nodeName: "n",
    clusterCidr: ["10.244.0.0/16", "fd00:244::/56"],
    nodeportAddresses: [],
    iptablesMasqueradeBit: 14,
    iptablesLocalhostNodeports: true,
    iptablesMinSyncPeriod: 1_000,
  });
  expect(warnings).toEqual(
    ["bindAddress", "clientConnection.kubeconfig"].map((field) => `${field}: kpng has no such option`),
  );
});

test("mode ipvs reads masqueradeAll and masqueradeBit from the section iptables, and no other field of it", async () => {
  const yaml = "iptables: {masqueradeAll: true, masqueradeBit: 0, minSyncPeriod: 1m, localhostNodePorts: false}";
  const standard = { iptablesMasqueradeBit: 14, iptablesLocalhostNodeports: true, iptablesMinSyncPeriod: 1_000 };
  const inMode = async (mode: string) => (await runYaml(yaml, [], mode)).values;
  expect(await inMode("ipvs")).toMatchObject({ ...standard, masqueradeAll: true, iptablesMasqueradeBit: 0 });
  expect(await inMode("nftables")).toMatchObject(standard);
});

test("fields set options, except in the section of another mode", async () => {
  const { values, warnings } = await runYaml(`
mode: iptables
hostnameOverride: node-1
healthzBindAddress: 0.0.0.0
metricsBindAddress: "[::1]:9000"
nodePortAddresses: [primary]
iptables: {masqueradeAll: true, masqueradeBit: 0, localhostNodePorts: false, minSyncPeriod: 1m30s}
nftables: {masqueradeBit: 7}
`);
  expect(values).toMatchObject({
    nodeName: "node-1",
    healthzBindAddress: "0.0.0.0:10256",
    metricsBindAddress: "[::1]:9000",
    nodeportAddresses: ["primary"],
    masqueradeAll: true,
    iptablesMasqueradeBit: 0,
    iptablesLocalhostNodeports: false,
    iptablesMinSyncPeriod: 90_000,
  });
  expect(warnings).toEqual([]);
});

test("the command line and the environment take precedence over the file", async () => {
  process.env.KPNG_CLUSTER_CIDR = "10.2.0.0/16";
  try {
    const yaml = "hostnameOverride: file\nclusterCIDR: 10.1.0.0/16\niptables: {masqueradeBit: 3}";
    const { values } = await runYaml(yaml, ["--node-name", "flag"]);
    expect(values).toMatchObject({ nodeName: "flag", clusterCidr: ["10.2.0.0/16"], iptablesMasqueradeBit: 3 });
  } finally {
    delete process.env.KPNG_CLUSTER_CIDR;
  }
});

test("other fields are ignored, as in kube-proxy, and logged", async () => {
  const { warnings } = await runYaml(`
featureGates: {Foo: true}
constructor: {a: 1}
conntrack: {min: 0, tcpBeLiberal: true}
`);
  expect(warnings).toEqual([
    "featureGates.Foo: kpng has no such option",
    "constructor.a: kpng has no such option",
    "conntrack.min: this backend has no option --conntrack-min",
    "conntrack.tcpBeLiberal: this backend has no option --conntrack-tcp-be-liberal",
  ]);
});

test.each([
  {
    name: "a switch that is neither true nor false",
    yaml: "iptables: {masqueradeAll: 1}",
    says: "iptables.masqueradeAll 1: expected true or false",
  },
  {
    name: "a value that the option refuses",
    yaml: "iptables: {masqueradeBit: 32}",
    says: "iptables.masqueradeBit 32",
  },
  { name: "another backend's mode", yaml: "mode: nftables", says: "mode is nftables, and this backend is iptables" },
  { name: "a field twice", yaml: "mode: iptables\nmode: iptables", says: "Map keys must be unique" },
  { name: "another kind", yaml: "---\nkind: KubeletConfiguration", says: "" },
])("$name is refused", async ({ yaml, says }) => {
  await expect(runYaml(yaml)).rejects.toThrow(/^\[BAD_CONFIG\] --config/);
  await expect(runYaml(yaml)).rejects.toThrow(says);
});

test("a missing file is refused", async () => {
  await expect(run(join(folder, "none.yaml"))).rejects.toThrow(/^\[BAD_CONFIG\] .*ENOENT/);
});
