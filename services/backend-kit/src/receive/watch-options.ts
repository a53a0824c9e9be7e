import type { Transport } from "@connectrpc/connect";
import type { ForwardGate } from "@kpng/model/forward/forward-gate.ts";
import type { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import type { HeldItems } from "./held-items.ts";

/**
 * Options of one stream from a watcher, for `watchBatches` and, above it, `followView`. A file of its own, because
 * `WatchRequests` and `admitState`, which `watchBatches` calls, need it too.
 */
export interface WatchOptions {
  readonly transport: Transport;
  /** At most 253 characters. A node that the cluster does not know is allowed. */
  readonly nodeName: string;
  /** Value of the label `service.kubernetes.io/service-proxy-name`; undefined or "" for the watcher's default. */
  readonly serviceProxyName?: string | undefined;
  /** Maximum size of a message after decompression, in bytes. Default and maximum 64 MiB. */
  readonly maxMessageBytes?: number | undefined;
  /**
   * Maximum memory that the view may take, and each batch, in bytes; `estimateOpBytes` estimates it. A batch or a view
   * beyond it ends the stream. Default: no limit.
   */
  readonly maxViewBytes?: number | undefined;
  /** Protocol features that this client supports. Default: all that this library supports. */
  readonly features?: readonly Feature[] | undefined;
  /**
   * Digests of the view that earlier streams brought. A watcher that supports them sends only the differences. Each
   * batch updates them.
   */
  readonly held?: HeldItems | undefined;
  /** Lets through only states that are not older than those of earlier streams. Default: all. */
  readonly gate?: ForwardGate | undefined;
  /** Results of syncs, sent to a watcher that accepts acknowledgements. */
  readonly acks?: Acknowledgements | undefined;
  /** Name and version of this program, shown in the watcher's list of subscribers. */
  readonly program?: { readonly name: string; readonly version: string } | undefined;
}
