import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from "node:https";
import type { KubeConnection, KubeResponse } from "./connection.ts";
import { type ConnectOptions, loadConfig } from "./load-config.ts";

/** Keep-alive probes start after this long: a peer that is gone is noticed half a minute later at most. */
const keepAliveMs = 15_000;

/**
 * Makes the connection to the API server. Configuration, credentials and TLS are client-node's: kubeconfig, exec
 * plugins, OIDC, token files, client certificates, proxies.
 *
 * Token files are read again every minute, as in client-go, and at once with the whole configuration when the server
 * answers 401: client-node counts that minute on the wall clock, which may be set back.
 *
 * Errors: BAD_OPTION if there is no usable configuration.
 */
export function connectKube(options: ConnectOptions = {}): KubeConnection {
  let config = loadConfig(options);
  const server = config.getCurrentCluster()?.server ?? "";
  const isPlain = server.startsWith("http:");
  // Connections are pooled by certificate and authority here, so that renewed ones are used; client-node's agent
  // keeps the first ones for ever.
  // Pages of a list share a connection; one that idles longer may have died unnoticed, and is not used again.
  const agentOptions = { keepAlive: true, keepAliveMsecs: keepAliveMs, timeout: 5_000 };
  const agent = isPlain ? new HttpAgent(agentOptions) : new HttpsAgent(agentOptions);

  async function send(path: string, signal: AbortSignal): Promise<IncomingMessage> {
    const credentials: RequestOptions = {};
    await config.applyToHTTPSOptions(credentials);
    const proxyUrl = config.getCurrentCluster()?.proxyUrl;
    const requestOptions = {
      ...credentials,
      headers: trimHeaders({ ...credentials.headers, accept: "application/json" }),
      agent: proxyUrl === undefined ? agent : credentials.agent,
      signal,
    };
    return new Promise((resolve, reject) => {
      const request = (isPlain ? httpRequest : httpsRequest)(`${server}${path}`, requestOptions, (response) => {
        // Who reads the body gets the error from there; a connection that breaks between two reads must not be uncaught.
        response.on("error", () => undefined);
        resolve(response);
      });
      request.on("socket", (socket) => socket.setKeepAlive(true, keepAliveMs));
      request.on("error", reject);
      request.end();
    });
  }

  return {
    server,
    async get(path, signal): Promise<KubeResponse> {
      let response = await send(path, signal);
      if (response.statusCode === 401) {
        response.resume();
        config = loadConfig(options);
        response = await send(path, signal);
      }
      return { status: response.statusCode ?? 0, body: response };
    },
    close: () => agent.destroy(),
  };
}

/** A token file may end in a newline, which no header may have. */
function trimHeaders(headers: RequestOptions["headers"]): Record<string, string> {
  return Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name, String(value).trim()]));
}
