import { writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { Feature, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { addresses, draining, endpoint, node, ready, service, slice } from "@kpng/watcher/testing/build.ts";
import { GrpcJsWatch } from "../peer/grpc-js-client.ts";
import { Chromium } from "./chromium.ts";
import { servePage } from "./page-server.ts";

/**
 * Writes the pictures of the status page in `docs/images`, with an example cluster:
 *
 *   node test/page/screenshots.ts
 */
const nodeCount = 12;
const names = ["web", "cart", "payment", "search", "invoice", "mail"];

/** The endpoints of a Service; with `isDraining`, one of them terminates. */
function sliceOf(index: number, isDraining: boolean) {
  const name = names[index] ?? "";
  const endpoints = Array.from({ length: 4 }, (_, pod) =>
    endpoint(`10.1.${index}.${pod + 1}`, {
      podName: `${name}-${pod + 1}`,
      nodeName: `n${((index + pod * 3) % nodeCount) + 1}`,
      conditions: isDraining && pod === 1 ? draining : ready,
    }),
  );
  return slice(endpoints, { namespace: "shop", name: `${name}-a`, serviceName: name });
}

const store = new Store();
store.replace({
  services: [...names, "legacy"].map((name, index) =>
    service({ namespace: "shop", name, clusterIPs: addresses(`10.96.0.${index + 1}`) }),
  ),
  slices: names.map((_, index) => sliceOf(index, false)),
  nodes: Array.from({ length: nodeCount + 1 }, (_, index) => node(`n${index + 1}`, { zone: `z${(index % 3) + 1}` })),
});
const server = await servePage(store);

function revisionOf(batch: readonly OpItem[]): bigint {
  const op = batch.at(-1)?.Op;
  return op?.case === "Sync" ? op.value.Revision : 0n;
}

/** A proxy that applies each batch after a delay; the fourth one fails from revision 8 on. */
async function join(index: number): Promise<GrpcJsWatch> {
  const watch = new GrpcJsWatch(server.address, "local");
  const request = { NodeName: `n${index + 1}`, Features: [Feature.Extended] };
  watch.send({ ...request, Subscriber: { Name: "kpng-nft", Version: "0.1.0" } });
  const follow = async (): Promise<never> => {
    for (;;) {
      const revision = revisionOf(await watch.batch());
      watch.send(request);
      await wait(12 + index * 2);
      const hasFailed = index === 3 && revision >= 8n;
      const text = "[COMMIT_REJECTED] nft rejected a transaction of 214 lines: No space left on device";
      watch.send({ Ack: hasFailed ? { Failed: revision, Error: text } : { Applied: revision } });
    }
  };
  follow().catch(() => undefined);
  return watch;
}

const nodes = await Promise.all(Array.from({ length: nodeCount }, (_, index) => join(index)));
const browser = await Chromium.start();
try {
  for (let step = 0; step < 12; step += 1) {
    await wait(300);
    const changed = sliceOf(step % names.length, step < names.length);
    store.apply([{ kind: "put-slice", slice: changed }], { source: "kube", receivedAtMs: Date.now() - 1 });
  }
  await wait(1_000);
  for (const scheme of ["light", "dark"] as const) {
    await browser.setColorScheme(scheme);
    for (const name of ["problems", "changes"]) {
      await browser.open(`http://${server.page}/#/${name}`);
      while (!(await browser.text("#rows")).includes("nft rejected")) await wait(100);
      writeFileSync(`docs/images/status-page-${name}-${scheme}.png`, await browser.screenshot(900, 580));
    }
  }
} finally {
  await browser.stop();
  for (const one of nodes) one.close();
  await server.stop();
}
