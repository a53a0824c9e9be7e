import { existsSync, readFileSync } from "node:fs";
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from "node:https";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { addAbortSignal } from "node:stream";
import { isRecord } from "@kpng/model/narrowing.ts";
import { reasonOf, withoutCredentials } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { KubeConfig } from "@kubernetes/client-node";
import { load } from "js-yaml";
import type { KubeConnection, KubeResponse } from "./connection.ts";

/** A connection whose credentials can also be used for WebSockets to pods. */
export interface KubeClient extends KubeConnection {
  /**
   * Returns headers and TLS options that prove the caller's identity. Rejects with the error of an exec plugin that
   * fails.
   */
  credentials(): Promise<RequestOptions>;
  /** Sends a request with any method; otherwise like `post`. The body of PATCH is a JSON merge patch. */
  send(method: string, path: string, body: object | undefined, signal: AbortSignal): Promise<KubeResponse>;
}

/**
 * Returns a connection to the API server. Kubernetes' client library reads the configuration and provides credentials
 * and TLS: kubeconfig, exec plugins, OIDC, token files, client certificates, proxies. The library rereads token files
 * every minute by the system clock, which may be set back, so we reload the whole configuration after a response with
 * status 401.
 *
 * Errors: BAD_OPTION if there is no usable configuration.
 */
export function connectKube(options: ConnectOptions = {}): KubeClient {
  let config = loadConfig(options);
  const server = config.getCurrentCluster()?.server ?? "";
  const isPlain = server.startsWith("http:");
  // client-node's agent keeps the first client certificate and CA forever. This agent pools connections by certificate
  // and CA, so that renewed ones take effect. The pages of a list share a connection; a connection that has been idle
  // for longer than `timeout` may be dead. A silent watch is not ended, because the agent destroys only idle sockets.
  const agentOptions = { keepAlive: true, keepAliveMsecs: keepAliveMs, timeout: 5_000 };
  const agent = isPlain ? new HttpAgent(agentOptions) : new HttpsAgent(agentOptions);

  async function credentials(): Promise<RequestOptions> {
    const proof: RequestOptions = {};
    await config.applyToHTTPSOptions(proof);
    return { ...proof, headers: trimHeaders(proof.headers) };
  }

  async function send(method: string, path: string, body: unknown, signal: AbortSignal): Promise<IncomingMessage> {
    const proof = await credentials();
    const proxyUrl = config.getCurrentCluster()?.proxyUrl;
    const type = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    const content = body === undefined ? {} : { "content-type": type };
    const requestOptions = {
      ...proof,
      method,
      headers: { ...proof.headers, accept: "application/json", ...content },
      agent: proxyUrl === undefined ? agent : proof.agent,
    };
    return new Promise((resolve, reject) => {
      const request = (isPlain ? httpRequest : httpsRequest)(`${server}${path}`, requestOptions, (response) => {
        // Without a listener, an error between two reads of the body would be uncaught.
        response.on("error", () => undefined);
        resolve(response);
      });
      request.on("socket", (socket) => {
        socket.setKeepAlive(true, keepAliveMs);
        // Between the end of a response and its return to the pool, a connection has no error listener, so an abort at
        // that moment would end the process.
        if (!socket.listeners("error").includes(ignoreError)) socket.on("error", ignoreError);
      });
      request.on("error", reject);
      // If the signal were passed as an option of a plain HTTP request, it would also be bound to the connection, and
      // an abort after the response would destroy the connection while it waits for the next request.
      addAbortSignal(signal, request);
      request.end(body && JSON.stringify(body));
    });
  }

  async function call(...sent: Parameters<typeof send>): Promise<KubeResponse> {
    let response = await send(...sent);
    if (response.statusCode === 401) {
      response.resume();
      config = loadConfig(options);
      response = await send(...sent);
    }
    return { status: response.statusCode ?? 0, body: response };
  }

  return {
    server,
    credentials,
    get: (path, signal) => call("GET", path, undefined, signal),
    post: (path, body, signal) => call("POST", path, body, signal),
    send: call,
    close: () => agent.destroy(),
  };
}

/** Idle time before TCP keep-alive probes start, in milliseconds. They detect a dead peer within half a minute. */
const keepAliveMs = 15_000;

function ignoreError(): void {}

/** Removes the newline at the end of a token file, because headers must not contain one. */
function trimHeaders(headers: RequestOptions["headers"]): Record<string, string> {
  return Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name, String(value).trim()]));
}

/**
 * Loads a kubeconfig, or the ServiceAccount of the pod. Errors: BAD_OPTION if there is no configuration, if it lacks
 * the context or the cluster, or if the server is not an HTTP URL.
 */
export function loadConfig({ kubeconfig, context, server, podRoot = "" }: ConnectOptions): KubeConfig {
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
  if (context !== undefined) {
    const names = config.contexts.map(({ name }) => name);
    if (!names.includes(context)) {
      const known = names.length === 0 ? "it has none" : `it has ${names.join(", ")}`;
      throw new ProcessError("BAD_OPTION", `no context "${context}" in the kubeconfig: ${known}`);
    }
    config.setCurrentContext(context);
  }
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw new ProcessError("BAD_OPTION", "the kubeconfig has no current context with a cluster");
  const url = (server ?? cluster.server).replace(/\/+$/, "");
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? "")) {
    const place = server === undefined ? `kubeconfig, cluster ${cluster.name}` : "--server";
    const text = `${place}: invalid URL "${withoutCredentials(url)}"; write https://host:port`;
    throw new ProcessError("BAD_OPTION", text);
  }
  // client-node accepts plain HTTP (kubectl proxy) only with this flag, although there is then no TLS verification to
  // skip.
  const skipTLSVerify = cluster.skipTLSVerify || url.startsWith("http:");
  config.clusters = config.clusters.map((other) =>
    other.name === cluster.name ? { ...other, server: url, skipTLSVerify } : other,
  );
  return config;
}

interface ConnectOptions {
  /** Path of a kubeconfig. Default: $KUBECONFIG, otherwise the pod's ServiceAccount, otherwise ~/.kube/config. */
  readonly kubeconfig?: string | undefined;
  /** Name of a context in the kubeconfig. Default: its current one. */
  readonly context?: string | undefined;
  /**
   * Overrides the server URL of the kubeconfig. Without a kubeconfig, an https URL is used with the pod's
   * ServiceAccount (if there is one), and any other URL without credentials.
   */
  readonly server?: string | undefined;
  /** Folder that contains the pod's /var/run/secrets, for tests. Default "", the root. */
  readonly podRoot?: string | undefined;
}

function isInPod(podRoot: string): boolean {
  const token = `${podRoot}/var/run/secrets/kubernetes.io/serviceaccount/token`;
  return process.env.KUBERNETES_SERVICE_HOST !== undefined && existsSync(token);
}

/** Returns the files listed in $KUBECONFIG, which are merged, as kubectl does. */
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
 * Returns the `tokenFile` of a user in a kubeconfig, as kubeadm writes it for pods; client-node 2.0 ignores the field.
 */
function tokenFileOf(file: string, userName: string): string | undefined {
  const config: unknown = load(readFileSync(file, "utf8"));
  const users: readonly unknown[] = isRecord(config) && Array.isArray(config.users) ? config.users : [];
  const entry = users.find((user) => isRecord(user) && user.name === userName);
  const user = isRecord(entry) && isRecord(entry.user) ? entry.user : {};
  return typeof user.tokenFile === "string" ? resolve(dirname(file), user.tokenFile) : undefined;
}
