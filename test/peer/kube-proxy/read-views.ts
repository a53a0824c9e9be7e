import { followView } from "@kpng/backend-kit/receive/follow-view.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { createLog } from "@kpng/process/log.ts";
import type { Snapshot } from "@kpng/watcher/store/snapshot.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { RunningSource } from "../../cluster/run-source.ts";

/** Results of our side for the cluster. */
export interface OurSide {
  readonly snapshot: Snapshot;
  /** Views by node, as received over the wire. */
  readonly views: ReadonlyMap<string, NodeView>;
}

/** Reads the API server with our Kubernetes source, serves the state, and requests the views of the given nodes. */
export async function readViews(kubeconfig: string, nodeNames: readonly string[]): Promise<OurSide> {
  const source = new RunningSource({ kubeconfig });
  try {
    await source.untilReady();
    const { store } = source.sink;
    const server = await serveStore(store);
    try {
      const views = new Map<string, NodeView>();
      for (const nodeName of nodeNames) views.set(nodeName, await readView(server.address, nodeName));
      return { snapshot: store.snapshot, views };
    } finally {
      await server.stop();
    }
  } finally {
    await source.stop();
  }
}

async function readView(api: string, nodeName: string): Promise<NodeView> {
  const stop = new AbortController();
  const log = createLog("error", () => undefined);
  const options = { transport: dial({ api }), nodeName, log, onConnection: () => undefined };
  for await (const { view } of followView(options, stop.signal)) {
    stop.abort();
    return view;
  }
  throw new Error(`the stream of ${nodeName} ended`);
}
