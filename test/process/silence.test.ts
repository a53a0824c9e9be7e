import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type ConnectionState, followView } from "@kpng/backend-kit/receive/follow-view.ts";
import { inTurn, startFakeWatcher } from "@kpng/backend-kit/testing/fake-watcher.ts";
import { reset, sync } from "@kpng/backend-kit/testing/ops.ts";
import { relay } from "@kpng/laboratory/relay.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { readClientTls, readServerTls } from "@kpng/process/credential-files.ts";
import { createLog } from "@kpng/process/log.ts";
import { makeCertificates } from "@kpng/process/testing/certificates.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { expect, test } from "vitest";
import { portOf } from "../cluster/ports.ts";

// A watcher whose machine lost its power: it closes no connection and does not answer.
const log = createLog("error", () => undefined);

interface Following {
  readonly states: ConnectionState[];
  stop(): Promise<void>;
}

function follow(transport: ReturnType<typeof dial>): Following {
  const stop = new AbortController();
  const states: ConnectionState[] = [];
  const onConnection = (state: ConnectionState): void => void states.push(state);
  const options = { transport, nodeName: "n1", log, onConnection, errorDelayMs: 10 };
  const following = Array.fromAsync(followView(options, stop.signal));
  return {
    states,
    stop: async () => {
      stop.abort();
      await following;
    },
  };
}

test.each([{ name: "without TLS" }, { name: "with TLS", hasTls: true }])(
  "a node notices, and goes on when the watcher is back, $name",
  async ({ hasTls = false }) => {
    const files = makeCertificates();
    const store = new Store();
    store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
    const tls = hasTls ? { tls: readServerTls("", { ...files.server, ca: files.ca }) } : {};
    const server = await serveStore(store, { pingMs: 200, drainMs: 0, ...tls });
    const network = relay(0, server.address);
    await once(network, "listening");
    const api = `localhost:${portOf(network)}`;
    const node1 = follow(dial(hasTls ? { api, tls: readClientTls({ ...files.client, ca: files.ca }) } : { api }));
    try {
      await expect.poll(() => node1.states.map(({ kind }) => kind)).toEqual(["synced"]);
      // Longer than three intervals: only pings keep the stream, because nothing changes.
      await sleep(800);
      expect(node1.states.map(({ kind }) => kind)).toEqual(["synced"]);
      network.mute(true);
      await expect.poll(() => node1.states.some(({ kind }) => kind === "lost")).toBe(true);
      network.breakAll();
      network.mute(false);
      await expect.poll(() => node1.states.at(-1)?.kind).toBe("synced");
    } finally {
      await node1.stop();
      network.close();
      await server.stop();
    }
  },
);

test("a watcher that does not announce its ping interval may be silent, also in the place of one that does", async () => {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
  const server = await serveStore(store, { pingMs: 200, drainMs: 0 });
  await using watcher = await startFakeWatcher(inTurn([reset, sync()]));
  let address = server.address;
  const network = relay(0, () => address);
  await once(network, "listening");
  const node1 = follow(dial({ api: `localhost:${portOf(network)}` }));
  try {
    await expect.poll(() => node1.states.map(({ kind }) => kind)).toEqual(["synced"]);
    ({ address } = watcher);
    await server.stop();
    await expect.poll(() => node1.states.length > 1 && node1.states.at(-1)?.kind).toBe("synced");
    const before = [...node1.states];
    await sleep(1_200);
    expect(node1.states).toEqual(before);
  } finally {
    await node1.stop();
    network.close();
  }
});
