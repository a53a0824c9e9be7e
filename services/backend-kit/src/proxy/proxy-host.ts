import type { AddressSet } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { Registry } from "prom-client";
import type { SyncRequests } from "../sync/sync-requests.ts";
import type { Sysctls } from "../sysctl/sysctls.ts";

/**
 * Destination of the changes of a run.
 *
 * - kernel: they are committed.
 * - print: `--dry-run`, each transaction is printed.
 * - nowhere: `--diff` and other runs that only compare.
 */
export type Destination =
  | { readonly kind: "kernel" }
  | { readonly kind: "print"; readonly print: (text: string) => void }
  | { readonly kind: "nowhere" };

/** Settings and services of a run. */
export interface ProxyHost {
  readonly destination: Destination;
  readonly settings: ProxySettings;
  readonly sysctls: Sysctls;
  /** Returns the node's own addresses, without those of Services, as of the last reading; see `RecentAddresses`. */
  readonly localAddresses: () => AddressSet;
  /** Makes `localAddresses` read them again. */
  readonly forgetAddresses: () => void;
  /** Accepts requests of a rule set, such as a partial sync for work that is due later. */
  readonly requests: SyncRequests;
  readonly log: Log;
  readonly metrics: Registry;
}
