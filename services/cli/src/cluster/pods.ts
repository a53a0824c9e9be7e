import type { Duplex } from "node:stream";
import { isRecord } from "@kpng/model/narrowing.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { KubeClient } from "@kpng/source/kube/connect.ts";
import { type KubeResponse, parseJson, readText } from "@kpng/source/kube/connection.ts";
import { WebSocket } from "ws";
import { type Channels, channelProtocol, streamOf } from "./channels.ts";

/** A pod, as far as commands need it. */
export interface Pod {
  readonly name: string;
  /** Name of its node; "no node" before it has one. */
  readonly node: string;
  /** The port named "grpc"; a watcher's standard port if no port has that name. */
  readonly port: number;
  /** The reason why the pod cannot answer: "not ready", "terminating", or its phase. Undefined if it is ready. */
  readonly problem: string | undefined;
}

/** Time limit for an answer from the API server, in milliseconds; it is short because a person waits. */
const limitMs = 10_000;

/**
 * Sends requests to the API server about one namespace.
 *
 * They fail with REQUEST_FAILED, which names the missing right if the server refuses.
 */
export class NamespaceClient {
  readonly name: string;
  readonly #client: KubeClient;
  readonly #signal: AbortSignal;

  constructor(name: string, client: KubeClient, signal: AbortSignal) {
    this.name = name;
    this.#client = client;
    this.#signal = signal;
  }

  /** Lists the pods with these labels, on one node or in the whole namespace. */
  async listPods(labels: string, node?: string): Promise<readonly Pod[]> {
    const query = new URLSearchParams({ labelSelector: labels });
    if (node !== undefined) query.set("fieldSelector", `spec.nodeName=${node}`);
    const { items } = await this.request("list pods", `pods?${query}`);
    return recordsOf(items).map(podOf);
  }

  /**
   * Sends a GET request, or a POST request if there is a body. `right` names the required right in errors, as in RBAC
   * rules: `list pods`.
   */
  async request(right: string, path: string, body?: unknown): Promise<Readonly<Record<string, unknown>>> {
    const { server, get, post } = this.#client;
    const timeout = AbortSignal.timeout(limitMs);
    const limit = AbortSignal.any([this.#signal, timeout]);
    const url = this.#pathOf(path);
    let response: KubeResponse;
    let text: string;
    try {
      response = await (body === undefined ? get(url, limit) : post(url, body, limit));
      text = await readText(response.body);
    } catch (cause) {
      const reason = timeout.aborted ? `no answer within ${limitMs / 1_000} s` : reasonOf(cause);
      const hint = "is it the right context, and can this machine reach its network?";
      throw new ProcessError("REQUEST_FAILED", `cannot reach the API server ${server}: ${reason}\nHint: ${hint}`);
    }
    const object = parseJson(text);
    if (response.status < 300 && isRecord(object)) return object;
    throw new ProcessError("REQUEST_FAILED", `${server}: ${this.#describe(right, response.status, text)}`);
  }

  /**
   * Opens a stream through the API server to a pod. `subresource` names the required right in errors, e.g.
   * `pods/portforward`; `path` is relative to the namespace, e.g. `pods/watcher-0/portforward?ports=12090`. Errors are
   * reported by the stream.
   */
  open(subresource: string, path: string, channels: Channels): Duplex {
    return streamOf(() => this.#openWebSocket(subresource, this.#pathOf(path)), channels);
  }

  async #openWebSocket(subresource: string, path: string): Promise<WebSocket> {
    const url = `${this.#client.server.replace(/^http/, "ws")}${path}`;
    const socket = new WebSocket(url, [channelProtocol], await this.#client.credentials());
    const abort = (): void => socket.terminate();
    this.#signal.addEventListener("abort", abort);
    socket.once("close", () => this.#signal.removeEventListener("abort", abort));
    return new Promise((resolve, reject) => {
      socket.on("error", reject);
      socket.once("open", () => {
        // Pause until the stream listens, because the first messages may arrive in the same packet.
        socket.pause();
        resolve(socket);
      });
      socket.once("unexpected-response", (request, response) => {
        readText(response)
          .then((body) => new Error(this.#describe(`create ${subresource}`, response.statusCode ?? 0, body)))
          .then(reject, reject)
          .finally(() => request.destroy());
      });
    });
  }

  #pathOf(path: string): string {
    return `/api/v1/namespaces/${encodeURIComponent(this.name)}/${path}`;
  }

  /** Describes a refusal by the API server. The body is a Status object, or text from a proxy. */
  #describe(right: string, status: number, body: string): string {
    const object = parseJson(body);
    const reason = isRecord(object) && typeof object.message === "string" ? object.message : body.trim().slice(0, 200);
    const verb = status === 401 || status === 403 ? "not allowed to" : "cannot";
    const hint = hints[status] === undefined ? "" : `\nHint: ${hints[status]}`;
    return `${verb} ${right} in namespace ${this.name} (${status}): ${reason}${hint}`;
  }
}

const hints: Readonly<Record<number, string>> = {
  401: "the kubeconfig's credentials are not valid, or no longer: log in again",
  403: "docs/inspect.md has the Role that a user needs",
  404: "is kpng of this version installed there (docs/install.md)?",
};

function podOf({ metadata, spec, status }: Json): Pod {
  const { name, deletionTimestamp } = recordOf(metadata);
  const { nodeName = "no node", containers } = recordOf(spec);
  const { phase, conditions } = recordOf(status);
  const ports = recordsOf(containers).flatMap((container) => recordsOf(container.ports));
  const { containerPort = 12_090 } = ports.find((port) => port.name === "grpc") ?? {};
  const isReady = recordsOf(conditions).some((one) => one.type === "Ready" && one.status === "True");
  const state = phase === "Running" ? "not ready" : String(phase);
  const problem = deletionTimestamp === undefined ? (isReady ? undefined : state) : "terminating";
  return { name: String(name), node: String(nodeName), port: Number(containerPort), problem };
}

type Json = Readonly<Record<string, unknown>>;

function recordOf(value: unknown): Json {
  return isRecord(value) ? value : {};
}

function recordsOf(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.map(recordOf) : [];
}
