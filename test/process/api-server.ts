import { createServer, type ServerResponse } from "node:http";
import { onTestFinished } from "vitest";
import { listen } from "../cluster/ports.ts";

/** Names of the collections that the Kubernetes source reads. */
type Collection = "services" | "endpointslices" | "nodes";

/**
 * A scripted API server that serves lists and watches over HTTP, for faults that a real one has only after minutes, or
 * never. Each change ends the watches with 410, so that the source lists again.
 */
export class ApiServer {
  readonly #objects: Record<Collection, readonly object[]> = { services: [], endpointslices: [], nodes: [] };
  readonly #watches = new Set<ServerResponse>();
  readonly #refused = new Set<Collection>();
  /** Requests without an answer, while the server is silent. */
  #unanswered: (() => void)[] | undefined;
  #version = 100;
  #port = 0;

  /** Starts a server, until the end of the test. */
  static async start(): Promise<ApiServer> {
    const api = new ApiServer();
    const server = createServer(({ url = "" }, response) => api.#answer(new URL(url, "http://api"), response));
    api.#port = await listen(server);
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    return api;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Replaces a collection. */
  set(collection: Collection, objects: readonly object[]): void {
    this.#objects[collection] = objects;
    this.#changed();
  }

  /** Refuses to list a collection, as without the right to do so, or stops refusing. */
  refuse(collection: Collection, isRefused: boolean): void {
    if (isRefused) this.#refused.add(collection);
    else this.#refused.delete(collection);
    this.#changed();
  }

  /** Answers no request, as a frozen process, or answers all that have waited. */
  beSilent(isSilent: boolean): void {
    const waiting = this.#unanswered ?? [];
    this.#unanswered = isSilent ? waiting : undefined;
    if (!isSilent) for (const answer of waiting) answer();
  }

  #changed(): void {
    this.#version += 1;
    const expired = { type: "ERROR", object: { kind: "Status", code: 410, message: "too old resource version" } };
    for (const watch of this.#watches) watch.end(`${JSON.stringify(expired)}\n`);
    this.#watches.clear();
  }

  #answer(url: URL, response: ServerResponse): void {
    const { pathname, searchParams } = url;
    if (this.#unanswered !== undefined) return void this.#unanswered.push(() => this.#answer(url, response));
    const collection = pathname.split("/").at(-1) ?? "";
    if (collection === "kube-system") {
      response.end(JSON.stringify({ metadata: { uid: "11111111-2222-3333-4444-555555555555" } }));
    } else if (!Object.hasOwn(this.#objects, collection)) {
      response.writeHead(404).end("{}");
    } else if (this.#refused.has(collection as Collection)) {
      response.writeHead(403).end(JSON.stringify({ code: 403, message: `${collection} is forbidden` }));
    } else if (searchParams.has("watch")) {
      // As an event, it ends the source's growing delays between attempts.
      const bookmark = { type: "BOOKMARK", object: { metadata: { resourceVersion: String(this.#version) } } };
      response.write(`${JSON.stringify(bookmark)}\n`);
      this.#watches.add(response);
    } else {
      const metadata = { resourceVersion: String(this.#version) };
      response.end(JSON.stringify({ metadata, items: this.#objects[collection as Collection] }));
    }
  }
}
