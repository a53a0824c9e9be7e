import { readFileSync } from "node:fs";
import type { Transport } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { Sets } from "@kpng/model/gen/localv1/api_pb.ts";
import { retryLaterError } from "@kpng/process/connection/reconnect.ts";
import { readClientTls } from "@kpng/process/credential-files.ts";
import { makeCertificates } from "@kpng/process/testing/certificates.ts";
import { expect, test } from "vitest";
import { freePort, listen } from "../../../../test/cluster/ports.ts";
import { followView, watchView } from "../receive/follow-view.ts";
import { ViewState } from "../state/view-state.ts";
import { inTurn, silence, startFakeWatcher } from "../testing/fake-watcher.ts";
import { reset, sync } from "../testing/ops.ts";
import { createReadableLog } from "../testing/steps.ts";
import { dialWatchers } from "./dial-watchers.ts";

const play = (instance: string) => startFakeWatcher(inTurn([reset, sync(1n, instance)]));

async function firstInstance(transport: Transport): Promise<string> {
  const stop = new AbortController();
  try {
    const options = { transport, nodeName: "n" };
    for await (const { instance } of watchView(new ViewState("n"), options, stop.signal)) return instance;
    return "none";
  } finally {
    stop.abort();
  }
}

test("two streams in a row go to different watchers", async () => {
  await using first = await play("first");
  await using second = await play("second");
  const { log } = createReadableLog();
  const transport = dialWatchers({ api: `${first.address},${second.address}`, log });
  const seen: string[] = [];
  for (let count = 0; count < 6; count++) seen.push(await firstInstance(transport));
  for (let index = 1; index < seen.length; index++) expect(seen[index], seen.join()).not.toBe(seen[index - 1]);
});

test("names are resolved for each stream, and have their last addresses if they cannot be resolved", async () => {
  await using watcher = await play("only");
  const port = watcher.address.split(":")[1];
  const { log, lines } = createReadableLog();
  let asked = 0;
  let isUp = true;
  const resolve = async () => {
    asked++;
    if (!isUp) throw new Error("no name server");
    return ["127.0.0.1"];
  };
  const transport = dialWatchers({ api: `watcher.test:${port}`, log, resolve });
  await firstInstance(transport);
  await firstInstance(transport);
  expect(asked).toBe(2);
  expect(lines.filter(({ msg }) => msg === "connected to watcher")).toMatchObject([{ address: `127.0.0.1:${port}` }]);
  isUp = false;
  expect(await firstInstance(transport)).toBe("only");
  const nowhere = dialWatchers({ api: `watcher.test:${port}`, log, resolve });
  await expect(firstInstance(nowhere)).rejects.toThrow("no watcher address: no name server");
});

test("the certificate is checked against the name, not against its resolved address", async () => {
  const files = makeCertificates();
  const { createSecureServer } = await import("node:http2");
  const server = createSecureServer(
    { key: readFileSync(files.server.key), cert: readFileSync(files.server.crt) },
    connectNodeAdapter({
      routes: (router) =>
        router.service(Sets, {
          async *watch() {
            yield* [reset, sync(1n, "tls")];
          },
        }),
    }),
  );
  const port = await listen(server);
  const { log } = createReadableLog();
  const tls = readClientTls({ ca: files.ca });
  const resolve = async () => ["127.0.0.1"];
  const ask = (host: string) => firstInstance(dialWatchers({ api: `${host}:${port}`, tls, log, resolve }));
  try {
    expect(await ask("localhost")).toBe("tls");
    await expect(ask("other.test")).rejects.toThrow("other.test");
  } finally {
    server.close();
  }
});

test("if a watcher does not accept a connection, the next one is tried", async () => {
  await using watcher = await play("alive");
  const port = await freePort();
  const { log } = createReadableLog();
  const transport = dialWatchers({ api: `127.0.0.1:${port},${watcher.address}`, log });
  for (let count = 0; count < 4; count++) expect(await firstInstance(transport)).toBe("alive");
  await watcher[Symbol.asyncDispose]();
  const error = await firstInstance(transport).catch(({ message }) => message);
  expect(error).toContain(`watcher 127.0.0.1:${port}: `);
  expect(error).toContain(`watcher ${watcher.address}: `);
});

test("a watcher that asks its nodes to move may be chosen again for the next stream", async () => {
  const asked: string[] = [];
  const play = (name: string) =>
    startFakeWatcher(({ index }) => {
      if (index > 0) throw retryLaterError("move", 0);
      asked.push(name);
      return [reset, sync()];
    });
  await using first = await play("first");
  await using second = await play("second");
  const { log } = createReadableLog();
  const stop = new AbortController();
  const transport = dialWatchers({ api: `${first.address},${second.address}`, log });
  const wait = async (): Promise<void> => undefined;
  for await (const _ of followView({ transport, nodeName: "n", log, wait }, stop.signal)) {
    if (asked.length === 100) stop.abort();
  }
  const stays = asked.filter((name, index) => index > 0 && name === asked[index - 1]).length;
  // About half of 99, except with a probability of one in a million.
  expect(stays).toBeGreaterThan(25);
  expect(stays).toBeLessThan(75);
});

test("if a watcher accepts the request and sends nothing, the next one is tried", async () => {
  await using hung = await startFakeWatcher(silence);
  await using alive = await play("alive");
  const { log } = createReadableLog();
  const api = `${hung.address},${alive.address}`;
  const transport = dialWatchers({ api, log, random: () => 0.99, answerLimitMs: 300 });
  await expect(firstInstance(transport)).rejects.toThrow(`watcher ${hung.address}: no answer within 300 ms`);
  expect(await firstInstance(transport)).toBe("alive");
});

test("each address of a name is tried once, and a name that cannot be resolved is named", async () => {
  const { log } = createReadableLog();
  const resolve = async (host: string) => {
    if (host === "watcher") return ["127.0.0.1", "::1"];
    throw new Error(`no ${host}`);
  };
  const transport = dialWatchers({ api: "127.0.0.1:9,watcher:9,unix:///none.sock,never:9", log, resolve });
  const error = String(await firstInstance(transport).catch(({ message }) => message));
  const tried = ["127.0.0.1:9", "[::1]:9", "unix:/none.sock"];
  expect(error).toContain("no never");
  for (const key of tried) expect(error.split(`watcher ${key}: `)).toHaveLength(2);
});

test("an invalid address is refused", () => {
  const { log } = createReadableLog();
  const dial = (api: string) => () => dialWatchers({ api, log });
  expect(dial("10.0.0.1:1,a b")).toThrow("[BAD_OPTION]");
  for (const nothing of ["", ","]) expect(dial(nothing)).toThrow(`--api "${nothing}" is not an address`);
  expect(dial("http://user:sec,ret@host")).toThrow('--api "http://***@host" is not an address');
});
