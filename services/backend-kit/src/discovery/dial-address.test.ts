import { createServer } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { checkReachable } from "./dial-address.ts";

test("a check whose signal has already aborted fails at once, without a connection", async () => {
  let connections = 0;
  const server = createServer(() => {
    connections += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as { port: number };
  const address = { kind: "tcp", host: "127.0.0.1", port, isTls: false } as const;
  const check = checkReachable({ key: `127.0.0.1:${port}`, address }, 10_000, AbortSignal.abort());
  await expect(check).rejects.toThrow("aborted");
  expect(connections).toBe(0);
});
