import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from "node:https";
import { addAbortSignal } from "node:stream";
import type { KubeConnection, KubeResponse } from "./connection.ts";
import { type ConnectOptions, loadConfig } from "./load-config.ts";

/**
 * Returns a connection to the API server. The Kubernetes client library (client-node) reads the configuration and
 * provides credentials and TLS: kubeconfig, exec plugins, OIDC, token files, client certificates, proxies.
 *
 * client-node rereads token files every minute, as client-go does. It measures that minute on the wall clock, which may
 * be set back, so a response with status 401 makes us reload the whole configuration at once.
 *
 * Errors: BAD_OPTION if there is no usable configuration.
 *
 * `kpng kube` calls it for `kubeSource` and for reviews of tokens, `kpng certificates` for the names of the Nodes.
 * Separate from `loadConfig`, which finds the configuration: this file sends the requests.
 */
export function connectKube(options: ConnectOptions = {}): KubeConnection {
  let config = loadConfig(options);
  const server = config.getCurrentCluster()?.server ?? "";
  const isPlain = server.startsWith("http:");
  // Our own agent, because client-node's agent keeps the first client certificate and CA forever. This one pools
  // connections by certificate and CA, so renewed ones take effect.
  // The pages of a list share a connection. A connection that was idle for longer may be dead and is not reused.
  const agentOptions = { keepAlive: true, keepAliveMsecs: keepAliveMs, timeout: 5_000 };
  const agent = isPlain ? new HttpAgent(agentOptions) : new HttpsAgent(agentOptions);

  async function send({ path, body }: Sent, signal: AbortSignal): Promise<IncomingMessage> {
    const credentials: RequestOptions = {};
    await config.applyToHTTPSOptions(credentials);
    const proxyUrl = config.getCurrentCluster()?.proxyUrl;
    const content = body === undefined ? {} : { "content-type": "application/json" };
    const requestOptions = {
      ...credentials,
      method: body === undefined ? "GET" : "POST",
      headers: trimHeaders({ ...credentials.headers, accept, ...content }),
      agent: proxyUrl === undefined ? agent : credentials.agent,
    };
    return new Promise((resolve, reject) => {
      const request = (isPlain ? httpRequest : httpsRequest)(`${server}${path}`, requestOptions, (response) => {
        // The reader of the body sees the error there. This listener keeps an error between two reads from being
        // uncaught.
        response.on("error", () => undefined);
        resolve(response);
      });
      request.on("socket", (socket) => {
        socket.setKeepAlive(true, keepAliveMs);
        // Between the end of a response and its return to the pool, a connection has no listener of its own: an abort
        // at that moment would end the process.
        if (!socket.listeners("error").includes(ignoreError)) socket.on("error", ignoreError);
      });
      request.on("error", reject);
      // Not as an option of the request: with plain HTTP, Node.js would bind the connection to the signal as well, and
      // an abort after the response would destroy it while it waits for the next request.
      addAbortSignal(signal, request);
      request.end(body);
    });
  }

  async function call(sent: Sent, signal: AbortSignal): Promise<KubeResponse> {
    let response = await send(sent, signal);
    if (response.statusCode === 401) {
      response.resume();
      config = loadConfig(options);
      response = await send(sent, signal);
    }
    return { status: response.statusCode ?? 0, body: response };
  }

  return {
    server,
    get: (path, signal) => call({ path }, signal),
    post: (path, body, signal) => call({ path, body: JSON.stringify(body) }, signal),
    close: () => agent.destroy(),
  };
}

/** The second type is that of the signing keys that `kubeAuthority` reads. */
const accept = "application/json, application/jwk-set+json";

/** A request: a GET, or with a body of JSON a POST. */
interface Sent {
  readonly path: string;
  readonly body?: string | undefined;
}

/** Idle time before TCP keep-alive probes start, in milliseconds. They detect a dead peer within half a minute. */
const keepAliveMs = 15_000;

/** Errors of a connection reach the request, or the reader of the body. */
function ignoreError(): void {}

/** Removes the newline that a token file may end in: headers must not contain one. */
function trimHeaders(headers: RequestOptions["headers"]): Record<string, string> {
  return Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name, String(value).trim()]));
}
