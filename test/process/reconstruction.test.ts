import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { followView } from "@kpng/backend-kit/receive/follow-view.ts";
import { ViewState } from "@kpng/backend-kit/state/view-state.ts";
import type { ViewUpdate } from "@kpng/backend-kit/types/sync-update.ts";
import { relay } from "@kpng/laboratory/relay.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { createLog } from "@kpng/process/log.ts";
import { makePick, makeRandom } from "@kpng/process/random.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import type { ObjectChange } from "@kpng/source/source.ts";
import { node } from "@kpng/source/testing/build.ts";
import type { Snapshot } from "@kpng/watcher/store/snapshot.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { expectedItems } from "@kpng/watcher/testing/expected-items.ts";
import { opsIn } from "@kpng/watcher/testing/ops-in.ts";
import { randomChange } from "@kpng/watcher/testing/random-change.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { expect, test } from "vitest";
import { portOf } from "../cluster/ports.ts";

/** Returns the expected view of a node, computed only from a snapshot. */
function plainView(snapshot: Snapshot, nodeName: string): NodeView {
  const state = new ViewState(nodeName);
  for (const item of expectedItems(snapshot, { nodeName, proxyName: "", isExtended: true, wantsNode: true })) {
    for (const op of opsIn(item.frame)) state.stage(op);
  }
  return state.next().held.view;
}

function show({ node: one, services }: NodeView): unknown {
  return { node: one, services: [...services] };
}

const nodeNames = ["n1", "n2", "nowhere"];

test("at each marker, a node holds the view of its revision, for random changes, reading speeds and reconnects", async () => {
  const seed = Number(process.env.KPNG_TEST_SEED ?? Math.floor(Math.random() * 1e9));
  const random = makeRandom(seed);
  const pick = makePick(random);
  const folder = temporaryFolder();
  const stop = new AbortController();
  const snapshots = new Map<string, Snapshot>();
  const stores = [new Store(), new Store()];
  for (const store of stores) {
    store.observe(({ next }) => snapshots.set(`${store.instance} ${next.revision}`, next));
    store.replace({ services: [], slices: [], nodes: [node("n1"), node("n2")] });
  }
  const sockets = stores.map((_, index) => join(folder, `${index}.sock`));
  const servers = await Promise.all(
    stores.map((store, index) => serveStore(store, { listen: [`unix://${sockets[index]}`] })),
  );
  const network = relay(0, () => makePick(random)(...sockets));
  await once(network, "listening");
  const api = `127.0.0.1:${portOf(network)}`;
  const log = createLog("error", () => undefined);
  const latest = new Map<string, ViewUpdate>();
  let markers = 0;
  let losses = 0;
  let divergences = 0;
  const follow = async (nodeName: string): Promise<void> => {
    const options = { transport: dial({ api }), nodeName, log, errorDelayMs: 1 };
    const onConnection = ({ kind }: { kind: string }): void => {
      if (kind === "lost") losses += 1;
      if (kind === "diverged") divergences += 1;
    };
    for await (const update of followView({ ...options, onConnection }, stop.signal)) {
      const snapshot = snapshots.get(`${update.instance} ${update.revision}`);
      if (snapshot === undefined) throw new Error(`unknown revision ${update.revision} (seed ${seed})`);
      const context = `seed ${seed}, ${nodeName}, revision ${update.revision}`;
      expect(show(update.view), context).toEqual(show(plainView(snapshot, nodeName)));
      latest.set(nodeName, update);
      markers += 1;
      // A slow reader: changes in the meantime arrive as one batch.
      if (random() < 0.3) await sleep(random() * 8);
    }
  };
  const following = Promise.all(nodeNames.map(follow));
  try {
    const behind: ObjectChange[][] = [];
    const drive = async (): Promise<void> => {
      // On a busy machine, nodes merge so many changes that 250 steps are too few markers.
      for (let step = 0; step < 250 || markers <= 50 || losses <= 3; step += 1) {
        const changes = Array.from({ length: pick(0, 1, 1, 3) }, () => randomChange(pick));
        stores[0]?.apply(changes);
        // The other replica lags behind.
        behind.push(changes);
        while (behind.length > 0 && random() < 0.5) stores[1]?.apply(behind.shift() ?? []);
        if (random() < 0.04) network.breakAll();
        if (random() < 0.5) await sleep(random() * 4);
      }
      for (const changes of behind) stores[1]?.apply(changes);
    };
    await Promise.race([drive(), following]);
    const last = stores[0]?.snapshot;
    if (last === undefined) throw new Error("no store");
    for (const nodeName of nodeNames) {
      const expected = show(plainView(last, nodeName));
      await expect
        .poll(() => latest.has(nodeName) && show(latest.get(nodeName)?.view as NodeView), { timeout: 20_000 })
        .toEqual(expected);
    }
    expect(divergences).toBe(0);
  } finally {
    stop.abort();
    await following.catch(() => undefined);
    network.close();
    for (const server of servers) await server.stop();
  }
}, 60_000);
