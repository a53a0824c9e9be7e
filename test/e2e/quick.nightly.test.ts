import { resolve } from "node:path";
import { expect, test } from "vitest";
import { findBinaries } from "../cluster/binaries.ts";
import { readBlocks, whereElse } from "../documents/blocks.ts";
import { type Cluster, startCluster } from "./cluster/cluster.ts";
import { controlPlaneName } from "./cluster/network.ts";
import { makeTestImages } from "./images/test-images.ts";
import { installProxy } from "./proxy/install.ts";
import { installationOfSources } from "./proxy/installation.ts";
import { findPrograms, isCached, whyNoCluster } from "./requirements.ts";
import { runTests } from "./suite/run-tests.ts";
import { selectTests } from "./suite/selection.ts";
import { formatTable } from "./suite/table.ts";

const name = "kpng from our manifests and images passes tests of Kubernetes on a cluster of two nodes";

const thisFile = "test/e2e/quick.nightly.test.ts";

/** Limit for the whole test; it takes about a minute on two cores. */
const timeoutMs = 600_000;

/**
 * Returns the reason why this machine does not run the test. Unlike other missing prerequisites, it skips the test in
 * CI too: on a machine without the programs, a quarter of an hour of compilation would precede a minute of testing.
 */
async function whySkipped(): Promise<string | undefined> {
  const reason = whyNoCluster();
  if (reason !== undefined) return reason;
  if (process.env.KPNG_E2E === "1" || (await isCached())) return undefined;
  return "the programs of a cluster are not in the cache; KPNG_E2E=1 or `npm run e2e` builds them";
}

const reason = await whySkipped();
if (reason !== undefined) {
  // Vitest's summary only counts skipped tests.
  process.stderr.write(`test/e2e: skipped "${name}": ${reason}\n`);
  test.skip(`${name} (skipped: ${reason})`);
} else {
  test(name, { timeout: timeoutMs }, async () => {
    const programs = await findPrograms();
    if (programs.kind === "missing") throw new Error(programs.reason);
    const { paths } = programs;
    const installation = await installationOfSources("iptables");
    const images = { tests: await makeTestImages(paths), proxy: installation.archives };
    const cluster = await startCluster({ paths, images, families: ["ipv4"], nodeCount: 2 });
    try {
      await installProxy(installation, cluster, paths);
      await typeGuideCommands(cluster);
      await askThroughApiServer(cluster);
      await askWithGrpcurl(cluster);
      const results = await runTests(cluster, paths, { selection: selectTests(undefined, "quick") });
      const table = formatTable([{ title: "kpng-iptables", results }]);
      expect(results.filter(({ outcome }) => outcome.kind === "passed").length, table).toBe(6);
      expect(
        results.filter(({ outcome }) => outcome.kind === "failed"),
        table,
      ).toEqual([]);
    } finally {
      await cluster.stop();
    }
  });
}

/** Asks all watchers and a backend with a kubeconfig, through real kubelets. */
async function askThroughApiServer({ laboratory, kubectl, addresses }: Cluster): Promise<void> {
  const main = resolve(import.meta.dirname, "../../services/cli/src/main.ts");
  const kpng = (...words: string[]): Promise<string> =>
    laboratory.run(controlPlaneName, [process.execPath, main, ...words, "--kubeconfig", kubectl.kubeconfig]);
  const all = `nodes +${addresses.nodes.length} current`;
  await expect.poll(() => kpng("status"), { timeout: 60_000 }).toMatch(new RegExp(`(replica .*\\n[\\s\\S]*){2}${all}`));
  expect(await kpng("get", "backend", "--node", addresses.nodes[0]?.name ?? "")).toMatch(/kpng-iptables +\w+ +yes/);
}

/** Types the commands of docs/inspect.md that ask an installed watcher with grpcurl. */
async function askWithGrpcurl({ kubectl, addresses, folder }: Cluster): Promise<void> {
  const { commands = [] } = readBlocks().find(({ commands }) => commands.some((one) => one.includes("-cacert"))) ?? {};
  const found = await findBinaries(["grpcurl"]);
  if (found.kind === "missing") throw new Error(found.reason);
  const address = addresses.nodes[0]?.addresses[0] ?? "";
  const typed = commands.join("\n").replace("10.0.0.11", address).replaceAll("grpcurl", found.paths.grpcurl);
  const answer: unknown = JSON.parse(await kubectl.runInShell(`cd '${folder}'\n${typed}`));
  expect(answer).toMatchObject({ nodes: addresses.nodes.map(({ name }) => ({ name })) });
}

/** Types the commands of the guides that look into pods of kpng. They are about kpng-nft and a pod of their own. */
async function typeGuideCommands({ kubectl }: Cluster): Promise<void> {
  const selector = "app.kubernetes.io/component=iptables";
  const find = ["--namespace", "kube-system", "get", "pods", "--selector", selector, "--output", "name"];
  const [pod = ""] = (await kubectl.run(find)).split("\n");
  const typed = readBlocks().flatMap(({ path, commands }) =>
    commands.filter((command) => whereElse(path, command)?.test === thisFile && path !== "docs/inspect.md"),
  );
  expect(typed.length).toBeGreaterThan(3);
  for (const command of typed) {
    const own = command.replace(/\bkpng-nft-\w+/, pod.replace("pod/", "")).replace("to-nft", "to-iptables");
    expect(await kubectl.run(own.split(" ").slice(1)), own).not.toBe("");
  }
}
