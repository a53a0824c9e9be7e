import type { Store } from "../store/store.ts";
import type { ProxyNames } from "../stream/session/requests.ts";
import type { Subscribers } from "../stream/session/subscribers.ts";
import type { RecentChanges } from "./changes/recent-changes.ts";

/**
 * State that the inspection methods read. `inspection` creates it once for each watcher. A file of its own, because the
 * list methods, the watch methods, `explainMethod` and the status page all read it.
 */
export interface InspectContext {
  readonly store: Store;
  readonly subscribers: Subscribers;
  readonly proxyNames: ProxyNames;
  readonly changes: RecentChanges;
  /** Start of the watcher, in milliseconds since 1970. */
  readonly startedAtMs: number;
  /** Version of the program; "" if unknown. */
  readonly version: string;
}
