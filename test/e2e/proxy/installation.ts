import { execFileSync } from "node:child_process";
import { globSync, mkdtempSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { findBinaries } from "../../cluster/binaries.ts";
import { makeTempFolder } from "../../cluster/test-cache.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { controlPlaneName } from "../cluster/network.ts";
import { type Backend, buildImages } from "./images.ts";

/** Values that a cluster's administrator decides: the data of the ConfigMap `kpng`, by key. */
export type ClusterValues = Readonly<Record<"api-server" | "cluster-cidr" | "watchers", string>>;

/** One version of the watchers and of a backend, and how an administrator installs it. */
export interface Installation {
  readonly backend: Backend;
  /** Archives of its images. */
  readonly archives: readonly string[];
  /** Command line of its program `kpng`, which makes certificates. */
  readonly kpng: readonly string[];
  /** Installs it in a cluster that has labels and certificates, or over another version. Its pods start then. */
  apply(cluster: Cluster, values: ClusterValues): Promise<void>;
}

/** Folder of the manifests. */
export const manifests = resolve(import.meta.dirname, "../../../deploy/kubernetes");

/** The sources of this repository. *Cost:* a minute or two the first time, for the images. */
export async function installationOfSources(backend: Backend): Promise<Installation> {
  return {
    backend,
    archives: await buildImages(backend),
    kpng: [process.execPath, resolve(import.meta.dirname, "../../../services/cli/src/main.ts")],
    apply: async (cluster, values) => {
      await applyConfig(cluster, values);
      await cluster.kubectl.run(["apply", "--kustomize", join(manifests, "overlays/replace-kube-proxy", backend)]);
    },
  };
}

/**
 * The files of a release, and nothing else. Errors: a folder without one of them; with `byHelm`, helm cannot be built.
 */
export async function installationOfRelease(folder: string, backend: Backend, byHelm: boolean): Promise<Installation> {
  const find = (pattern: string): string => {
    const [found] = globSync(pattern, { cwd: folder });
    if (found === undefined) throw new Error(`${folder} has no ${pattern}: make it with npm run release -- … --images`);
    return resolve(folder, found);
  };
  const unpacked = mkdtempSync(join(makeTempFolder(), "release-"));
  const executable = find(`kpng-*-linux-${process.arch}.tar.gz`);
  execFileSync("tar", [
    "--extract",
    "--gzip",
    `--file=${executable}`,
    `--directory=${unpacked}`,
    "--strip-components=1",
  ]);
  const chart = find("kpng-chart-*.tgz");
  const helm = byHelm ? await findBinaries(["helm"]) : undefined;
  if (helm?.kind === "missing") throw new Error(helm.reason);
  return {
    backend,
    archives: ["watcher", backend].map((name) => find(`kpng-${name}-*.oci.tar`)),
    kpng: [join(unpacked, "kpng")],
    apply: async (cluster, values) => {
      if (helm !== undefined) return applyChart(cluster, [helm.paths.helm, chart], backend, values);
      await applyConfig(cluster, values);
      await cluster.kubectl.run(["apply", "--server-side", "--filename", find(`install-${backend}.yaml`)]);
    },
  };
}

/** Applies the ConfigMap `kpng`, which a chart makes itself. */
export async function applyConfig({ kubectl }: Cluster, data: ClusterValues): Promise<void> {
  const metadata = { name: "kpng", namespace: "kube-system" };
  await kubectl.apply([{ apiVersion: "v1", kind: "ConfigMap", metadata, data }]);
}

/** Runs the command of docs/install.md, which also upgrades. */
async function applyChart(
  { laboratory, kubectl, folder }: Cluster,
  [helm, chart]: readonly [helm: string, chart: string],
  backend: Backend,
  values: ClusterValues,
): Promise<void> {
  const file = join(folder, "values.json");
  writeFileSync(
    file,
    JSON.stringify({
      apiServer: values["api-server"],
      clusterCidrs: values["cluster-cidr"].split(","),
      watchers: values.watchers.split(","),
      replaceKubeProxy: true,
      backends: { [backend]: {} },
    }),
  );
  const options = ["--namespace=kube-system", `--kubeconfig=${kubectl.kubeconfig}`, `--values=${file}`];
  await laboratory.run(controlPlaneName, [helm, "upgrade", "--install", "kpng", chart, ...options]);
}
