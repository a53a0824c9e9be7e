import { makePick, makeRandom } from "@kpng/process/random.ts";
import type { NodeViewRequest } from "@kpng/watcher/items/view-target.ts";
import type { Snapshot } from "@kpng/watcher/store/snapshot.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { expectedItems } from "@kpng/watcher/testing/expected-items.ts";
import { randomChange } from "@kpng/watcher/testing/random-change.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { startRelay } from "@kpng/watcher/testing/start-relay.ts";
import { expect, onTestFinished, test } from "vitest";
import type { ObjectChange } from "../source.ts";
import { service } from "../testing/build.ts";

const requests: readonly NodeViewRequest[] = ["n1", "n2", "unknown"].flatMap((nodeName) => [
  { nodeName, proxyName: "", isExtended: true, wantsNode: true },
  { nodeName, proxyName: "x", isExtended: false, wantsNode: false },
]);

/** All items of the views of some nodes, by path, with their bytes. */
function viewsOf(snapshot: Snapshot): readonly string[] {
  return requests.flatMap((request) =>
    [...expectedItems(snapshot, request)]
      .map(({ section, path, frame }) => `${request.nodeName} ${section} ${path} ${Buffer.from(frame).toString("hex")}`)
      .sort(),
  );
}

async function relayOf(upstream: Store): Promise<Store> {
  const server = await serveStore(upstream);
  onTestFinished(() => server.stop());
  return startRelay(server.address).store;
}

test("the views through two relays are those of the first watcher, byte for byte, in random states", {
  timeout: 120_000,
}, async () => {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e6));
  const pick = makePick(makeRandom(seed));
  const origin = new Store();
  let version = 1n;
  const versions = () => ({ services: version, slices: version, nodes: version });
  const change = (): void => {
    version += 1n;
    const mark: ObjectChange = {
      kind: "put-service",
      service: service({ name: "mark", labels: { at: `${version}` } }),
    };
    const changes = [...Array.from({ length: pick(1, 1, 4) }, () => randomChange(pick)), mark];
    origin.apply(changes, { source: "kube", receivedAtMs: 0, versions: versions(), clusterId: "c1" });
  };
  origin.replace({ services: [], slices: [], nodes: [] }, { source: "kube", receivedAtMs: 0, versions: versions() });
  for (let count = 0; count < 30; count++) change();
  const first = await relayOf(origin);
  const second = await relayOf(first);
  for (let count = 0; count < 300; count++) {
    const mark = origin.snapshot.services.get("ns/mark");
    const relayed = () => second.snapshot.services.get("ns/mark")?.labels.at;
    await expect.poll(relayed, { timeout: 30_000, interval: 1 }).toBe(mark?.labels.at);
    expect(second.snapshot.position).toEqual(origin.snapshot.position);
    expect(viewsOf(second.snapshot), `SEED=${seed}, change ${count}`).toEqual(viewsOf(origin.snapshot));
    expect(second.snapshot.serviceCIDRs).toEqual(origin.snapshot.serviceCIDRs);
    change();
  }
});
