import { existsSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ApiClient } from "./api-client.ts";
import { Child } from "./child.ts";
import { ApiServer, Etcd } from "./control-plane.ts";
import { freePorts } from "./ports.ts";
import { makeTempFolder } from "./test-cache.ts";
import { until } from "./until.ts";
import { makeKubeconfig, type User } from "./users.ts";

/**
 * Paths of the programs, from `findBinaries`. kube-controller-manager runs the EndpointSlice controller; without it,
 * tests write slices themselves.
 */
export interface ClusterPrograms {
  readonly etcd: string;
  readonly "kube-apiserver": string;
  readonly "kube-controller-manager"?: string;
}

/** Control plane for one test file. */
export interface Cluster {
  readonly etcd: Etcd;
  readonly apiServer: ApiServer;
  /** API client with administrator rights. */
  readonly api: ApiClient;
  /** Temporary folder, removed with the cluster. */
  readonly folder: string;
  /** Writes a kubeconfig for the user and returns its path. `server` replaces the API server's URL, e.g. by a proxy. */
  kubeconfig(user: User, options?: { readonly server?: string; readonly tokenFile?: string }): string;
  /** Stops all programs and removes their files. */
  stop(): Promise<void>;
}

/**
 * Starts etcd, kube-apiserver and kube-controller-manager on free ports of the loopback address.
 *
 * *Cost:* about five seconds on two cores until Services get their EndpointSlices.
 *
 * Errors: a program that does not become ready, with the last lines of its output.
 */
export async function startCluster(paths: ClusterPrograms): Promise<Cluster> {
  const folder = makeTempFolder();
  const [clientPort = 0, peerPort = 0, apiPort = 0, managerPort = 0] = await freePorts(4);
  const etcd = new Etcd(paths.etcd, folder, clientPort, peerPort);
  const url = `https://127.0.0.1:${apiPort}`;
  const api = new ApiClient(url, join(folder, "certs", "apiserver.crt"));
  const apiServer: ApiServer = new ApiServer({
    path: paths["kube-apiserver"],
    folder,
    port: apiPort,
    etcdUrl: etcd.url,
    isReady: () => untilReady(api, apiServer),
  });
  const cluster: Cluster = {
    etcd,
    apiServer,
    api,
    folder,
    kubeconfig: (user, { server = apiServer.url, tokenFile } = {}) => {
      const path = join(folder, `${user}-${new URL(server).port}${tokenFile === undefined ? "" : "-file"}.kubeconfig`);
      writeFileSync(path, makeKubeconfig({ server, caFile: apiServer.caFile, user, tokenFile }));
      return path;
    },
    stop: async () => {
      api.close();
      // The data is not needed any more, so no program has to stop gracefully.
      await Promise.all([manager, apiServer.child, etcd.child].map((child) => child?.kill()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
  let manager: Child | undefined;
  try {
    await etcd.start();
    await apiServer.start();
    const managerPath = paths["kube-controller-manager"];
    if (managerPath !== undefined) {
      const kubeconfig = cluster.kubeconfig("admin");
      manager = makeManager(managerPath, folder, kubeconfig, managerPort);
      manager.start();
    }
  } catch (error) {
    await cluster.stop();
    throw error;
  }
  return cluster;
}

function makeManager(path: string, folder: string, kubeconfig: string, port: number): Child {
  const args = [
    `--kubeconfig=${kubeconfig}`,
    `--authentication-kubeconfig=${kubeconfig}`,
    `--authorization-kubeconfig=${kubeconfig}`,
    "--bind-address=127.0.0.1",
    `--secure-port=${port}`,
    `--cert-dir=${join(folder, "manager-certs")}`,
    "--leader-elect=false",
    "--controllers=endpointslice-controller",
    // The default of 20 queries per second is too slow for hundreds of Services.
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
  ];
  return new Child("kube-controller-manager", [path, ...args], join(folder, "kube-controller-manager.log"));
}

/** Longest time until a new API server is ready, in milliseconds. It took 60 s at a load of 13 on two cores. */
const readyMs = Number(process.env.KPNG_PATIENCE_MS ?? 180_000);

async function untilReady(api: ApiClient, apiServer: ApiServer): Promise<void> {
  const check = async (): Promise<boolean> => {
    if (!apiServer.child.isRunning) throw new Error("it has exited");
    // The server makes the file before it writes it, and the client reads it only once.
    if (!existsSync(apiServer.caFile) || statSync(apiServer.caFile).size === 0) return false;
    await api.call("GET", "/readyz");
    // The server creates this namespace and this Service shortly after it reports ready.
    await api.get("/api/v1/namespaces/default/services/kubernetes");
    return true;
  };
  await until("kube-apiserver is ready", check, readyMs, () => apiServer.child.tail());
}
