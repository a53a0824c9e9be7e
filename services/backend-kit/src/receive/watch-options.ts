import type { Transport } from "@connectrpc/connect";
import type { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import type { HeldItems } from "./held-items.ts";

export interface WatchOptions {
  readonly transport: Transport;
  /** At most 253 characters; a name that the cluster does not know is legal. */
  readonly nodeName: string;
  /** Which Services; undefined or "" for the watcher's default. */
  readonly serviceProxyName?: string | undefined;
  /** Most that packed operations may be when they are unpacked, in bytes. Default and at most 64 MiB. */
  readonly maxMessageBytes?: number | undefined;
  /** What this client understands. Default: everything that this library does. */
  readonly features?: readonly Feature[] | undefined;
  /** What earlier streams brought; the watcher then sends what differs, if it knows how. It is kept up to date. */
  readonly held?: HeldItems | undefined;
  /** What was applied, for a watcher that wants to know. */
  readonly acks?: Acknowledgements | undefined;
  /** The program, for people who look at the watcher. */
  readonly program?: { readonly name: string; readonly version: string } | undefined;
}
