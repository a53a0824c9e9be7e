import { readFileSync } from "node:fs";
import { Agent, request } from "node:https";
import { tokens } from "./users.ts";

/** The fields of an API object that the harness reads. */
export interface KubeObject {
  readonly apiVersion?: string | undefined;
  readonly kind?: string | undefined;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string | undefined;
    readonly labels?: Readonly<Record<string, string>> | undefined;
    readonly annotations?: Readonly<Record<string, string>> | undefined;
    readonly uid?: string | undefined;
    readonly resourceVersion?: string | undefined;
  };
  readonly [field: string]: unknown;
}

/** Response of the API server with an error status. */
export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Client of the test's API server with administrator rights. Paths are API paths, e.g. "/api/v1/nodes". */
export class ApiClient {
  readonly #server: string;
  readonly #caFile: string;
  #agent: Agent | undefined;

  constructor(server: string, caFile: string) {
    this.#server = server;
    this.#caFile = caFile;
  }

  /** Creates an object in a collection. */
  create(collection: string, object: KubeObject): Promise<KubeObject> {
    return this.#object("POST", collection, object);
  }

  get(path: string): Promise<KubeObject> {
    return this.#object("GET", path);
  }

  async list(collection: string): Promise<readonly KubeObject[]> {
    const list = (await this.call("GET", collection)) as { readonly items: readonly KubeObject[] };
    return list.items;
  }

  /** Changes an object with a JSON merge patch; a path that ends in "/status" changes the status. */
  patch(path: string, change: unknown): Promise<KubeObject> {
    return this.#object("PATCH", path, change);
  }

  /** Deletes an object at once. */
  async delete(path: string): Promise<void> {
    await this.call("DELETE", `${path}${path.includes("?") ? "&" : "?"}gracePeriodSeconds=0`);
  }

  /** Returns a token for an account of kube-system; `spec` is that of a TokenRequest. */
  async requestToken(account: string, spec: object = {}): Promise<string> {
    const request = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec };
    const answer = await this.call("POST", `/api/v1/namespaces/kube-system/serviceaccounts/${account}/token`, request);
    return (answer as { readonly status: { readonly token: string } }).status.token;
  }

  /** Closes all connections. */
  close(): void {
    this.#agent?.destroy();
    this.#agent = undefined;
  }

  /** Sends a request. Errors: ApiError with the server's message. */
  async call(method: string, path: string, body?: unknown): Promise<unknown> {
    const { status, text } = await this.#send(method, path, body);
    if (status >= 300) throw new ApiError(status, `${method} ${path}: ${status} ${text.slice(0, 500)}`);
    return text.startsWith("{") ? JSON.parse(text) : text;
  }

  async #object(method: string, path: string, body?: unknown): Promise<KubeObject> {
    return (await this.call(method, path, body)) as KubeObject;
  }

  #send(method: string, path: string, body: unknown): Promise<{ readonly status: number; readonly text: string }> {
    // The server writes the certificate when it starts.
    this.#agent ??= new Agent({ keepAlive: true, maxSockets: 16, ca: readFileSync(this.#caFile) });
    const headers = {
      authorization: `Bearer ${tokens.admin}`,
      "content-type": method === "PATCH" ? "application/merge-patch+json" : "application/json",
    };
    const url = `${this.#server}${path}`;
    return new Promise((resolve, reject) => {
      const call = request(url, { method, headers, agent: this.#agent, timeout: 20_000 }, (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString("utf8") }),
        );
      });
      call.on("timeout", () => call.destroy(new Error(`${method} ${path}: no response within 20 s`)));
      call.on("error", reject);
      call.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}
