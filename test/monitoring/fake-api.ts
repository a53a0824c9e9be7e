import { once } from "node:events";
import { createServer } from "node:http";
import { portOf } from "../cluster/ports.ts";

/** Server with the lists and watches of the Kubernetes API, and objects that do not change. */
interface FakeApi {
  readonly url: string;
  close(): void;
}

/** Starts the server. `lists` has the objects by the last part of their path, e.g. "services". */
export async function startFakeApi(lists: Readonly<Record<string, readonly unknown[]>>): Promise<FakeApi> {
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://localhost");
    response.setHeader("content-type", "application/json");
    // A watch stays open without events.
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
