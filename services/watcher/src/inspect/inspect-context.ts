import { Code, ConnectError } from "@connectrpc/connect";
import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import type { ProxyNames } from "../stream/session/requests.ts";
import type { Subscribers } from "../stream/session/subscribers.ts";
import type { RecentChanges } from "./changes/recent-changes.ts";

/** What questions are answered from. */
export interface InspectContext {
  readonly store: Store;
  readonly subscribers: Subscribers;
  readonly proxyNames: ProxyNames;
  readonly changes: RecentChanges;
}

/** Errors: UNAVAILABLE while the store has not yet all. */
export function syncedSnapshot(store: Store): Snapshot {
  if (store.snapshot.isSynced) return store.snapshot;
  throw new ConnectError(`waiting for the first list of ${store.missingKinds.join(", ")}`, Code.Unavailable);
}
