import { mkdirSync, writeFileSync } from "node:fs";
import type { Endpoint } from "@kpng/model/endpoint.ts";
import { Feature, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { addresses, draining, endpoint, node, service, slice } from "@kpng/watcher/testing/build.ts";
import { GrpcJsWatch } from "../peer/grpc-js-client.ts";
import { Chromium } from "./chromium.ts";
import { servePage } from "./page-server.ts";

/**
 * Writes the pictures of the status page in `docs/images`, with an example cluster:
 *
 *   node test/page/screenshots.ts
 */
const folder = "docs/images";
const nodeCount = 12;
const names = ["shop/web", "shop/cart", "shop/payment", "shop/search", "kube-system/dns", "monitoring/prometheus"];

const nodeName = (index: number): string => `n${(index % nodeCount) + 1}`;

function endpoints(index: number, drained: number): Endpoint[] {
  return Array.from({ length: 4 }, (_, pod) =>
    endpoint(`10.1.${index}.${pod + 1}`, {
      podName: `${names[index]?.split("/")[1]}-${pod + 1}`,
      nodeName: nodeName(index + pod * 3),
      zone: `z${(pod % 3) + 1}`,
      ...(pod === drained ? { conditions: draining } : {}),
    }),
  );
}

function sliceOf(index: number, drained = -1) {
  const [namespace = "", name = ""] = names[index]?.split("/") ?? [];
  return slice(endpoints(index, drained), { namespace, name: `${name}-a`, serviceName: name });
}

const store = new Store();
store.replace({
  services: names.map((key, index) => {
    const [namespace = "", name = ""] = key.split("/");
    return service({ namespace, name, clusterIPs: addresses(`10.96.0.${index + 1}`) });
  }),
  slices: names.map((_, index) => sliceOf(index)),
  nodes: Array.from({ length: nodeCount + 1 }, (_, index) => node(`n${index + 1}`, { zone: `z${(index % 3) + 1}` })),
});

/** Revision in the sync marker of a batch. */
function revisionOf(batch: readonly OpItem[]): bigint {
  const op = batch.at(-1)?.Op;
  return op?.case === "Sync" ? op.value.Revision : 0n;
}

/** A proxy that applies each batch after a delay; the fourth one fails. */
async function join(index: number): Promise<GrpcJsWatch> {
  const watch = new GrpcJsWatch(server.address, "local");
  const request = { NodeName: nodeName(index), Features: [Feature.Extended] };
  const first = await watch.ask({ ...request, Subscriber: { Name: "kpng-nft", Version: "0.1.0" } });
  const acknowledge = (revision: bigint): void => {
    const [wait, render, commit] = [200 + index * 90, 700 + index * 60, 5_000 + index * 900].map(BigInt);
    const Timings = { WaitMicros: wait, RenderMicros: render, CommitMicros: commit };
    watch.send({ Ack: { Applied: revision, Timings } });
  };
  acknowledge(revisionOf(first));
  void (async () => {
    for (let batches = 0; ; batches += 1) {
      watch.send(request);
      const revision = revisionOf(await watch.batch());
      if (index === 3 && batches > 25) {
        const text = "[COMMIT_REJECTED] nft rejected a transaction of 214 lines: No space left on device";
        watch.send({ Ack: { Failed: revision, Error: text } });
      } else setTimeout(() => acknowledge(revision), 12 + index * 2);
    }
  })().catch(() => undefined);
  return watch;
}

const server = await servePage(store);
const nodes = await Promise.all(Array.from({ length: nodeCount }, (_, index) => join(index)));
const browser = await Chromium.start();
mkdirSync(folder, { recursive: true });
let step = 0;
const changes = setInterval(() => {
  step += 1;
  store.apply(
    [{ kind: "put-slice", slice: sliceOf(step % names.length, step % (2 * names.length) < names.length ? 1 : -1) }],
    {
      source: "kube",
      receivedAtMs: Date.now() - 1,
    },
  );
}, 250);

async function shows(selector: string, text: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!(await browser.text(selector)).includes(text)) {
    if (Date.now() > deadline) throw new Error(`${selector} does not show "${text}"`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

try {
  for (const scheme of ["light", "dark"] as const) {
    await browser.setColorScheme(scheme);
    for (const [name, text] of [
      ["problems", "cannot apply"],
      ["changes", "endpoints"],
    ] as const) {
      await browser.open(`http://${server.page}/#/${name}`);
      await shows("#rows", text);
      await shows("#connection", "Live");
      writeFileSync(`${folder}/status-page-${name}-${scheme}.png`, await browser.screenshot(900, 580));
    }
  }
} finally {
  clearInterval(changes);
  await browser.stop();
  for (const one of nodes) one.close();
  await server.stop();
}
