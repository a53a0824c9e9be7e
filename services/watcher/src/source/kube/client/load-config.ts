import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { isRecord } from "@kpng/model/is-record.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { withoutCredentials } from "@kpng/process/redact.ts";
import { KubeConfig } from "@kubernetes/client-node";
import { parse } from "yaml";

export interface ConnectOptions {
  /** Path of a kubeconfig. Default: $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config. */
  readonly kubeconfig?: string | undefined;
  /** URL in place of the kubeconfig's; without a kubeconfig, used as it is and without credentials. */
  readonly server?: string | undefined;
}

const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/**
 * Reads the configuration from where the options say.
 *
 * Errors: BAD_OPTION if there is none, or it names no cluster or one at no URL.
 */
export function loadConfig({ kubeconfig, server }: ConnectOptions): KubeConfig {
  const config = new KubeConfig();
  try {
    if (kubeconfig !== undefined) loadFiles(config, [kubeconfig]);
    else if (server !== undefined) {
      config.loadFromClusterAndUser({ name: "server", server, skipTLSVerify: false }, { name: "nobody" });
    } else if (environmentFiles().length > 0) {
      loadFiles(config, environmentFiles());
    } else if (process.env.KUBERNETES_SERVICE_HOST !== undefined && existsSync(serviceAccountToken)) {
      config.loadFromCluster();
    } else loadFiles(config, [join(homedir(), ".kube", "config")]);
  } catch (cause) {
    throw new ProcessError("BAD_OPTION", `cannot read the Kubernetes configuration: ${reasonOf(cause)}`, { cause });
  }
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw new ProcessError("BAD_OPTION", "the kubeconfig has no current context with a cluster");
  const url = (server ?? cluster.server).replace(/\/+$/, "");
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? "")) {
    const what = server === undefined ? `the server of the kubeconfig's cluster ${cluster.name}` : "--server";
    const text = `${what}, "${withoutCredentials(url)}", is no URL: write https://host:port`;
    throw new ProcessError("BAD_OPTION", text);
  }
  // client-node takes plain HTTP (kubectl proxy) only with this flag, which then has nothing to skip.
  const skipTLSVerify = cluster.skipTLSVerify || url.startsWith("http:");
  config.clusters = config.clusters.map((other) =>
    other.name === cluster.name ? { ...other, server: url, skipTLSVerify } : other,
  );
  return config;
}

/** As kubectl: several files are merged. */
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
 * A user's `tokenFile`, with which kubeadm gives pods their kubeconfig; client-node 2.0 knows it only for in-cluster
 * configuration.
 */
function tokenFileOf(file: string, userName: string): string | undefined {
  const config: unknown = parse(readFileSync(file, "utf8"));
  const users: readonly unknown[] = isRecord(config) && Array.isArray(config.users) ? config.users : [];
  const entry = users.find((user) => isRecord(user) && user.name === userName);
  const user = isRecord(entry) && isRecord(entry.user) ? entry.user : {};
  return typeof user.tokenFile === "string" ? resolve(dirname(file), user.tokenFile) : undefined;
}
