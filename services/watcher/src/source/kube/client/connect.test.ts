import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { connectKube } from "./connect.ts";
import { openResponse } from "./open-response.ts";

const request = { verb: "watch", resource: "services" } as const;

test("a response that is closed before its end neither ends the process nor closes the next one's connection", async () => {
  const server = createServer((incoming, response) => {
    if (incoming.url === "/expired") response.end("gone\n");
    else setTimeout(() => response.end("complete"), 5);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const connection = connectKube({ server: `http://127.0.0.1:${port}` });
  const { signal } = new AbortController();
  try {
    for (let round = 0; round < 50; round += 1) {
      const expired = await openResponse(connection, { request, path: "/expired", silenceMs: 10_000 }, signal);
      if (expired.kind !== "open") throw new Error(expired.kind);
      expect(await expired.next()).toMatchObject({ kind: "chunk" });
      // As a watch does that ends with an ERROR event: it does not read the end.
      expired.close();
      const next = await openResponse(connection, { request, path: "/list", silenceMs: 10_000 }, signal);
      if (next.kind !== "open") throw new Error(next.kind);
      expect(await next.next()).toMatchObject({ kind: "chunk" });
      expect(await next.next()).toEqual({ kind: "end" });
      next.close();
    }
  } finally {
    connection.close();
    server.close();
  }
});
