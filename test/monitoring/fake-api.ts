import { once } from "node:events";
import { createServer } from "node:http";
import { portOf } from "../cluster/ports.ts";

/** A server that has the Kubernetes API's lists and watches, with objects that do not change. */
export interface FakeApi {
  readonly url: string;
  close(): void;
}

/** `lists`: the objects by the last part of their path, e.g. "services"; of others there are none. */
export async function startFakeApi(lists: Readonly<Record<string, readonly unknown[]>>): Promise<FakeApi> {
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://localhost");
    response.setHeader("content-type", "application/json");
    // A watch stays open, and tells nothing. That of a streamed list would have to end with a bookmark: it is refused.
    if (url.searchParams.has("sendInitialEvents")) return response.writeHead(422).end(JSON.stringify({ code: 422 }));
    if (url.searchParams.has("watch")) return response.flushHeaders();
    const items = lists[url.pathname.split("/").at(-1) ?? ""] ?? [];
    response.end(JSON.stringify({ metadata: { resourceVersion: "7" }, items }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${portOf(server)}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
