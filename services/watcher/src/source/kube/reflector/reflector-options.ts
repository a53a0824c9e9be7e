import type { BackoffOptions } from "@kpng/process/backoff.ts";
import type { KubeConnection } from "../client/connection.ts";
import type { Resource } from "../request/resource.ts";
import type { CollectionHandler } from "./collection-handler.ts";
import type { ReflectorObserver } from "./reflector-observer.ts";

/**
 * Limits and delays of a `Reflector`, which keeps our copy of one collection of the API server up to date. The defaults
 * are those of the program; tests shorten them.
 */
export interface ReflectorTiming {
  /** Objects per page of a list. Default 500. */
  readonly pageSize?: number | undefined;
  /** Longest time without a byte during a list, in milliseconds. Default 60 000. */
  readonly listSilenceMs?: number | undefined;
  /**
   * Shortest duration after which the server ends a watch, in seconds; each watch gets a random one up to twice as
   * long. Default 30.
   *
   * A watch of a kind that does not change receives no data, not even bookmarks. Only the missing end distinguishes a
   * dead watch from a quiet one. The next watch continues where the previous one ended.
   */
  readonly watchSeconds?: number | undefined;
  /** Time after the requested end at which a silent watch counts as dead, in milliseconds. Default 10 000. */
  readonly overdueMs?: number | undefined;
  /** Delay before the list that can confirm held deletions, in milliseconds. Default 31 000. */
  readonly confirmMs?: number | undefined;
  /** Delays after failures. Default 0.8 to 30 s. */
  readonly backoff?: BackoffOptions | undefined;
  /** Use streamed lists until the server refuses one. Default true. */
  readonly usesWatchList?: boolean | undefined;
}

/**
 * Collection that a `Reflector` follows, and where its objects and events go. `kubeSource` passes them to each
 * `Reflector`. Separate from the reflector, so that its file contains only its behaviour.
 */
export interface ReflectorOptions extends ReflectorTiming {
  readonly resource: Resource;
  readonly connection: KubeConnection;
  readonly handler: CollectionHandler;
  readonly observer: ReflectorObserver;
  /** True if the server may lack the kind, or deny access to it. It is then retried every ten minutes only. */
  readonly isOptional?: boolean | undefined;
}
