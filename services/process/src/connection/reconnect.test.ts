import { writeFileSync } from "node:fs";
import { connect, type NetConnectOpts } from "node:net";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { freePort } from "../../../../test/cluster/ports.ts";
import { temporaryFolder } from "../testing/temporary-folder.ts";
import { Reconnect } from "./reconnect.ts";

const folder = temporaryFolder(afterAll);

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

function delays(reconnect: Reconnect, ends: readonly unknown[], work?: () => void): readonly number[] {
  return ends.map((end) => {
    reconnect.opening();
    work?.();
    return reconnect.ended(end).delayMs;
  });
}

const noChance = { minMs: 1_000, random: () => 0 };
const broken = new Error("the stream broke");

test("while nothing listens at a unix socket or TCP port, the delay is at most three seconds", async () => {
  const stale = join(folder, "stale.sock");
  writeFileSync(stale, "");
  const port = await freePort();
  for (const target of [{ path: join(folder, "none.sock") }, { path: stale }, { host: "127.0.0.1", port }]) {
    const error = await failToConnect(target);
    expect(delays(new Reconnect(noChance), Array(4).fill(error)), String(error.cause)).toEqual([
      ...[1_000, 2_000, 3_000, 3_000],
    ]);
    expect(delays(new Reconnect({ ...noChance, minMs: 5_000 }), Array(2).fill(error))).toEqual([5_000, 5_000]);
    expect(new Reconnect(noChance).ended(error).kind).toBe("lost");
  }
});

test("a server whose streams break is retried with growing delays, also if it was away in between", async () => {
  const away = await failToConnect({ path: join(folder, "none.sock") });
  let nowMs = 0;
  const reconnect = new Reconnect(noChance, () => nowMs);
  const ends = [broken, broken, away, away, broken, broken, broken, broken];
  expect(delays(reconnect, ends)).toEqual([1_000, 2_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
  const workFor = (ms: number) => () => {
    reconnect.progressed();
    nowMs += ms;
    reconnect.progressed();
  };
  // A stream that works for less than 30 s does not shorten the delays.
  expect(delays(reconnect, [broken, broken], workFor(29_999))).toEqual([30_000, 30_000]);
  expect(delays(reconnect, [broken, broken], workFor(30_000))).toEqual([1_000, 1_000]);
});
