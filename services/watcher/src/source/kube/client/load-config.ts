import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { isRecord } from "@kpng/model/is-record.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { withoutCredentials } from "@kpng/process/redact.ts";
import { KubeConfig } from "@kubernetes/client-node";
import { load } from "js-yaml";

/**
 * Loads the Kubernetes configuration: a kubeconfig file, or the ServiceAccount of the pod.
 *
 * Errors: BAD_OPTION if there is no configuration, it selects no cluster, or the server is not an HTTP URL.
 *
 * `connectKube` calls it at the start, and again when the server refuses the credentials. Separate from it, because it
 * sends no requests.
 */
export function loadConfig({ kubeconfig, server, podRoot = "" }: ConnectOptions): KubeConfig {
  const config = new KubeConfig();
  try {
    if (kubeconfig !== undefined) loadFiles(config, [kubeconfig]);
    else if (server?.startsWith("https:") && isInPod(podRoot)) config.loadFromCluster(podRoot);
    else if (server !== undefined) {
      config.loadFromClusterAndUser({ name: "server", server, skipTLSVerify: false }, { name: "nobody" });
    } else if (environmentFiles().length > 0) {
      loadFiles(config, environmentFiles());
    } else if (isInPod(podRoot)) config.loadFromCluster(podRoot);
    else loadFiles(config, [join(homedir(), ".kube", "config")]);
  } catch (cause) {
    throw new ProcessError("BAD_OPTION", `cannot read the Kubernetes configuration: ${reasonOf(cause)}`, { cause });
  }
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw new ProcessError("BAD_OPTION", "the kubeconfig has no current context with a cluster");
  const url = (server ?? cluster.server).replace(/\/+$/, "");
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? "")) {
    const place = server === undefined ? `kubeconfig, cluster ${cluster.name}` : "--server";
    const text = `${place}: invalid URL "${withoutCredentials(url)}"; write https://host:port`;
    throw new ProcessError("BAD_OPTION", text);
  }
  // client-node accepts plain HTTP (kubectl proxy) only with this flag, although there is no TLS to skip then.
  const skipTLSVerify = cluster.skipTLSVerify || url.startsWith("http:");
  config.clusters = config.clusters.map((other) =>
    other.name === cluster.name ? { ...other, server: url, skipTLSVerify } : other,
  );
  return config;
}

/** Where the Kubernetes configuration comes from. */
export interface ConnectOptions {
  /** Path of a kubeconfig. Default: $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config. */
  readonly kubeconfig?: string | undefined;
  /**
   * Overrides the server URL of the kubeconfig. Without a kubeconfig, an https URL is used with the pod's
   * ServiceAccount if there is one, and any other without credentials.
   */
  readonly server?: string | undefined;
  /** Folder that contains the pod's /var/run/secrets, for tests. Default "", the root. */
  readonly podRoot?: string | undefined;
}

function isInPod(podRoot: string): boolean {
  const token = `${podRoot}/var/run/secrets/kubernetes.io/serviceaccount/token`;
  return process.env.KUBERNETES_SERVICE_HOST !== undefined && existsSync(token);
}

/** Files listed in $KUBECONFIG. Like kubectl, we merge them. */
function environmentFiles(): readonly string[] {
  return (process.env.KUBECONFIG ?? "").split(delimiter).filter((file) => file !== "");
}

function loadFiles(config: KubeConfig, files: readonly string[]): void {
  for (const file of files) {
    const next = new KubeConfig();
    next.loadFromFile(file);
    next.users = next.users.map((user) => {
      const tokenFile = tokenFileOf(file, user.name);
      return tokenFile === undefined || user.token !== undefined || user.authProvider !== undefined
        ? user
        : { ...user, authProvider: { name: "tokenFile", config: { tokenFile } } };
    });
    config.mergeConfig(next, config.getCurrentContext() !== undefined);
  }
}

/**
 * Returns the `tokenFile` of a user in a kubeconfig. kubeadm writes such files for pods, and client-node 2.0 ignores
 * the field outside the in-cluster configuration.
 */
function tokenFileOf(file: string, userName: string): string | undefined {
  const config: unknown = load(readFileSync(file, "utf8"));
  const users: readonly unknown[] = isRecord(config) && Array.isArray(config.users) ? config.users : [];
  const entry = users.find((user) => isRecord(user) && user.name === userName);
  const user = isRecord(entry) && isRecord(entry.user) ? entry.user : {};
  return typeof user.tokenFile === "string" ? resolve(dirname(file), user.tokenFile) : undefined;
}
