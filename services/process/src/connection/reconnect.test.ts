import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type NetConnectOpts } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Reconnect, retryLaterError } from "./reconnect.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-reconnect-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Returns the error of a failed connect, wrapped as in the error of a stream. */
function failToConnect(target: NetConnectOpts): Promise<Error> {
  return new Promise((resolve, reject) => {
    const socket = connect(target);
    socket.once("connect", () => reject(new Error("a process listens on the target")));
    socket.once("error", (cause) =>
      resolve(new Error("the stream broke", { cause: new Error("unavailable", { cause }) })),
    );
  });
}

async function unusedPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function delays(reconnect: Reconnect, ends: readonly unknown[]): readonly number[] {
  return ends.map((end) => {
    reconnect.opening();
    return reconnect.ended(end).delayMs;
  });
}

const noChance = { minMs: 1_000, random: () => 0 };
const broken = new Error("the stream broke");

describe("without a listener", () => {
  test("a unix socket, missing or stale, is retried every second", async () => {
    const stale = join(folder, "stale.sock");
    writeFileSync(stale, "");
    for (const path of [join(folder, "none.sock"), stale]) {
      const error = await failToConnect({ path });
      expect(delays(new Reconnect(noChance), Array(8).fill(error)), String(error.cause)).toEqual(Array(8).fill(1_000));
      expect(new Reconnect(noChance).ended(error).kind).toBe("lost");
    }
  });

  test("a TCP port is retried with growing delays", async () => {
    const error = await failToConnect({ host: "127.0.0.1", port: await unusedPort() });
    expect(delays(new Reconnect(noChance), Array(6).fill(error))).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
  });

  test.each([
    { minMs: 50, expected: [50, 100, 200, 400, 800, 1_000, 1_000] },
    { minMs: 5_000, expected: [5_000, 5_000, 5_000] },
  ])("a unix socket is first retried after $minMs ms", async ({ minMs, expected }) => {
    const error = await failToConnect({ path: join(folder, "none.sock") });
    expect(delays(new Reconnect({ minMs }), Array(expected.length).fill(error))).toEqual(expected);
  });
});

test("a served unix socket whose streams break is retried with growing delays, also if the listener was away in between", async () => {
  const away = await failToConnect({ path: join(folder, "none.sock") });
  const reconnect = new Reconnect(noChance);
  expect(delays(reconnect, [broken, broken, away, away, broken])).toEqual([1_000, 2_000, 1_000, 1_000, 4_000]);
  reconnect.progressed();
  expect(delays(reconnect, [broken])).toEqual([1_000]);
});

test("a client retries after the delay that the server asks for", () => {
  const reconnect = new Reconnect(noChance);
  expect(delays(reconnect, [retryLaterError("busy", 17_000)])).toEqual([17_000]);
});
