import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Kinds that the server has, by the last part of their path. */
export type ListedKind = "services" | "endpointslices" | "nodes";

/**
 * Stand-in for a large API server, for the bench `slices`: serves lists, streamed and in pages, and watches, from
 * objects that are serialized once. A real API server needs minutes to be filled with 10 000 objects.
 */
export class ListServer {
  /** The objects of each kind as JSON texts, by name. */
  readonly objects: Readonly<Record<ListedKind, Map<string, string>>> = {
    services: new Map(),
    endpointslices: new Map(),
    nodes: new Map(),
  };
  /** False for a server that refuses streamed lists, as before Kubernetes 1.32. */
  streams = true;
  readonly #watches = new Map<ServerResponse, ListedKind>();
  readonly #server = createServer((request, response) => this.#answer(request, response));
  #version = 1_000;
  #listCount = 0;

  /** Number of lists that were requested. */
  get listCount(): number {
    return this.#listCount;
  }

  /** The version that the next object has. */
  get nextVersion(): number {
    return this.#version + 1;
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Stores objects and sends them to the watches of the kind. */
  put(kind: ListedKind, objects: ReadonlyMap<string, string>): void {
    this.#version += 1;
    let lines = "";
    for (const [name, text] of objects) {
      this.objects[kind].set(name, text);
      lines += `{"type":"MODIFIED","object":${text}}\n`;
    }
    for (const [response, watched] of this.#watches) if (watched === kind) response.write(lines);
  }

  /** Ends the watches of a kind with 410 Gone, so that the client lists the kind again. */
  expire(kind: ListedKind): void {
    this.#version += 1;
    const status = { kind: "Status", status: "Failure", code: 410, reason: "Expired", message: "too old" };
    for (const [response, watched] of this.#watches) {
      if (watched === kind) response.end(`${JSON.stringify({ type: "ERROR", object: status })}\n`);
    }
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? "", "http://server");
    const kind = url.pathname.split("/").at(-1) as ListedKind;
    const objects = this.objects[kind];
    if (objects === undefined) {
      response.writeHead(404).end(`{"kind":"Status","code":404,"reason":"NotFound"}`);
    } else if (url.searchParams.get("watch") !== "true") {
      this.#page(url, objects, response);
    } else if (url.searchParams.get("sendInitialEvents") === "true") {
      if (this.streams) this.#stream(kind, objects, response);
      else response.writeHead(422).end(`{"kind":"Status","code":422,"reason":"Invalid"}`);
    } else {
      response.writeHead(200);
      response.flushHeaders();
      this.#watches.set(response, kind);
      response.once("close", () => this.#watches.delete(response));
    }
  }

  #page(url: URL, objects: ReadonlyMap<string, string>, response: ServerResponse): void {
    const first = Number(url.searchParams.get("continue") ?? 0);
    const limit = Number(url.searchParams.get("limit") ?? objects.size);
    if (first === 0) this.#listCount += 1;
    const items = [...objects.values()].slice(first, first + limit);
    const token = first + limit < objects.size ? String(first + limit) : "";
    const metadata = JSON.stringify({ resourceVersion: String(this.#version), continue: token });
    response.writeHead(200).end(`{"kind":"List","metadata":${metadata},"items":[${items.join(",")}]}`);
  }

  #stream(kind: ListedKind, objects: ReadonlyMap<string, string>, response: ServerResponse): void {
    this.#listCount += 1;
    response.writeHead(200);
    for (const text of objects.values()) response.write(`{"type":"ADDED","object":${text}}\n`);
    const annotations = { "k8s.io/initial-events-end": "true" };
    const metadata = { resourceVersion: String(this.#version), annotations };
    response.write(`${JSON.stringify({ type: "BOOKMARK", object: { kind, metadata } })}\n`);
  }
}
