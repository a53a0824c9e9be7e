import { readFileSync } from "node:fs";
import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { buildTwoNodes, type TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { named, type State, together } from "@kpng/laboratory/scenario/build.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import { kpngIptables } from "../kernel/backend/kpng-proxy.ts";
import { kubeProxy, whyNoKubeProxy } from "../kernel/backend/kube-proxy.ts";
import { bucketsOf, labelNames, type Metric, parseExposition } from "./exposition.ts";
import { changedNow } from "./scrape-programs.ts";

const whyNot = (await whyNoKubeProxy()) ?? (process.getuid?.() === 0 ? undefined : "root is required");

function stateWith(pods: readonly ("a" | "b" | "c")[]): State {
  const kept = named("kept", { number: 12, external: "Local" }, ["d"]);
  return changedNow(together(named("web", { number: 11 }, [...pods]), kept));
}

/** kube-proxy counts these packets with nfacct, which few kernels have. */
const ofNfacct = [
  "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
  "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
];

/** Whether kpng-iptables promises to have a metric of kube-proxy. */
function isShared({ name }: Metric): boolean {
  return name.startsWith("kubeproxy_") && !ofNfacct.includes(name);
}

const name = "metrics of kpng-iptables and of the real kube-proxy, on the same node with the same Services";
describeWhere(name, whyNot, () => {
  let world: TwoNodes;
  let theirProxy: CommandProxy;
  let ourProxy: CommandProxy;
  let theirs: ReadonlyMap<string, Metric>;
  let ours: ReadonlyMap<string, Metric>;

  beforeAll(async () => {
    world = await buildTwoNodes();
    theirProxy = await kubeProxy(world, 20_000);
    const args = ["--metrics-bind-address", "127.0.0.1:10271", "--healthz-bind-address", "127.0.0.1:10270"];
    ourProxy = await kpngIptables(world, { firstMarkerPort: 30_000, args });
    for (const proxy of [theirProxy, ourProxy]) {
      await proxy.start({}, stateWith(["a", "b"]));
      await proxy.apply(stateWith(["b", "c"]));
    }
    const get = async (port: number, path: string): Promise<string> => {
      const script = `fetch("http://127.0.0.1:${port}/${path}").then(async (answer) => console.log(await answer.text()))`;
      return world.laboratory.run("n1", [process.execPath, "-e", script]);
    };
    for (const port of [10_256, 10_270]) for (const path of ["healthz", "livez"]) await get(port, path);
    theirs = parseExposition(await get(10_249, "metrics"));
    ours = parseExposition(await get(10_271, "metrics"));
  }, 180_000);
  afterAll(async () => {
    await ourProxy?.close();
    await theirProxy?.close();
    await world?.close();
  });

  test("kpng-iptables has each of kube-proxy's own metrics, with its type, labels and buckets", () => {
    const shape = (metric: Metric | undefined) =>
      metric && { type: metric.type, labels: labelNames(metric), buckets: bucketsOf(metric) };
    const own = [...theirs.values()].filter(isShared);
    expect(own.length).toBeGreaterThan(15);
    const wanted = own.map((metric) => [metric.name, shape(metric)]);
    expect(own.map(({ name }) => [name, shape(ours.get(name))])).toEqual(wanted);
  });

  test("label values have kube-proxy's spelling", () => {
    const series = (metric: Metric | undefined): readonly string[] => {
      const samples = metric?.samples.filter(({ name }) => !name.endsWith("_bucket")) ?? [];
      return samples
        .map(({ name, labels }) => `${name} ${JSON.stringify(Object.entries(labels).toSorted())}`)
        .toSorted();
    };
    const own = [...theirs.values()].filter(isShared);
    // Both have run full and partial syncs of both families and answered health checks.
    for (const metric of own) expect(series(ours.get(metric.name)), metric.name).toEqual(series(metric));
  });

  test("docs/reference/metrics.md names each other metric of kube-proxy that we lack, with the reason", () => {
    const [, section = ""] = readFileSync("docs/reference/metrics.md", "utf8").split(
      "### Metrics of kube-proxy that kpng does not have\n",
    );
    const names = [...(section.split("\n#")[0]?.matchAll(/`([a-z_/*]+)`/g) ?? [])].map(([, name = ""]) => name);
    const patterns = names.map((name) => new RegExp(`^${name.replaceAll("*", ".*")}$`));
    const missing = [...theirs.keys()].filter((name) => !ours.has(name));
    expect(missing.length).toBeGreaterThan(10);
    expect(missing.filter((name) => !patterns.some((pattern) => pattern.test(name)))).toEqual([]);
  });
});
