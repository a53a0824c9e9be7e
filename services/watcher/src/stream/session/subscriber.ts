import { Code, ConnectError } from "@connectrpc/connect";
import type { ApplyFailure, Subscriber as SubscriberMessage } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Store } from "../../store/store.ts";
import type { Acknowledgement, ApplyTimings } from "./acknowledgement.ts";
import type { Delivery, DeliveryFollower, Recipient, SubscriberKind } from "./delivery.ts";
import { PendingBatches } from "./pending-batches.ts";
import { roundsOf } from "./rounds.ts";
import type { StreamMetrics } from "./stream-metrics.ts";
import { Subscription } from "./subscription.ts";

/**
 * The state of one open stream: its request, and the revisions that were sent, received and applied. `Subscribers`
 * creates it, `WatchStream` updates it, and metrics and inspection read it. `Subscription`, a part of it, computes the
 * batches; this class stores what the client reports.
 *
 * A revision that does not change the view of a subscriber causes no batch. A subscriber may therefore hold a newer
 * revision than that of its last batch; {@link upToDateRevision} and {@link appliedRevision} account for it.
 */
export class Subscriber implements Recipient {
  readonly id: number;
  readonly kind: SubscriberKind;
  readonly peer: string;
  /** Milliseconds since 1970. */
  readonly openedAtMs = Date.now();
  readonly subscription: Subscription;
  readonly #options: SubscriberOptions;
  nodeName = "";
  proxyName = "";
  /** Name and version of the client program; "" if the client did not send them. */
  program = "";
  version = "";
  #observes: boolean;
  #sent = 0;
  #sentAtMs = 0;
  #received = 0;
  #acknowledged = 0;
  #hasAcknowledged = false;
  #appliedAtMs = 0;
  #failed = 0;
  #error = "";
  // Copied into fields: one object for each acknowledgement of each stream would burden the garbage collector.
  #hasTimings = false;
  #waitMs = 0;
  #renderMs = 0;
  #commitMs = 0;
  readonly #pending = new PendingBatches();

  constructor(options: SubscriberOptions) {
    this.#options = options;
    this.id = options.id;
    this.kind = options.kind;
    this.peer = options.peer;
    this.#observes = options.isTool === true;
    this.subscription = new Subscription(roundsOf(options.store));
    options.metrics.subscribers.inc({ kind: options.kind });
  }

  close(): void {
    const { kind, metrics, close, followers } = this.#options;
    metrics.subscribers.dec({ kind });
    close();
    const pending = this.#pending;
    for (const batch of this.#hasAcknowledged ? pending.upTo(this.#sent) : pending.unreceived()) {
      for (const follower of followers) follower.lost?.(this, batch);
    }
  }

  /** True if it only reads, for a person or a recorder, and is neither the proxy of a node nor a relay. */
  get isObserver(): boolean {
    return this.#observes;
  }

  get isNode(): boolean {
    return this.kind === "local" && !this.#observes;
  }

  /** Revision of the last batch; 0 before the first. */
  get sentRevision(): number {
    return this.#sent;
  }

  /** When the last batch went out, in milliseconds since 1970; 0 before the first. */
  get sentAtMs(): number {
    return this.#sentAtMs;
  }

  /** Newest revision for which nothing remains to be sent; 0 before the first batch. */
  get upToDateRevision(): number {
    return this.#sent === 0 ? 0 : Math.max(this.#sent, this.subscription.quietRevision);
  }

  /** Newest revision that it has certainly received: it requested the next batch, or acknowledged this one. */
  get receivedRevision(): number {
    return this.#received === this.#sent ? this.upToDateRevision : this.#received;
  }

  /** True once it has sent an acknowledgement; KPNG's own clients never do. */
  get hasAcknowledged(): boolean {
    return this.#hasAcknowledged;
  }

  /** Newest revision that it has applied completely; 0 for none, or if it never acknowledges. */
  get appliedRevision(): number {
    return this.#acknowledged === this.#sent ? this.upToDateRevision : this.#acknowledged;
  }

  /** When it applied that revision, in milliseconds since 1970; 0 before the first acknowledgement. */
  get appliedAtMs(): number {
    return this.#appliedAtMs;
  }

  /**
   * Newest revision that it could not apply, and the error; undefined if the last attempt succeeded. The revision is 0
   * for an attempt on an earlier stream.
   */
  get failure(): { readonly revision: number; readonly error: string } | undefined {
    return this.#error === "" ? undefined : { revision: this.#failed, error: this.#error };
  }

  /** The timings in the last acknowledgement that had any. */
  get timings(): ApplyTimings | undefined {
    if (!this.#hasTimings) return undefined;
    return { waitMs: this.#waitMs, renderMs: this.#renderMs, commitMs: this.#commitMs };
  }

  /** When the oldest batch that is not applied was sent, in milliseconds since 1970; undefined if there is none. */
  get unappliedSinceMs(): number | undefined {
    return this.#hasAcknowledged ? this.#pending.oldestSentAtMs : undefined;
  }

  /** Stores the description that the client sends. */
  introduce(message: SubscriberMessage | undefined): void {
    if (message === undefined) return;
    this.program = message.Name.slice(0, maxNameLength);
    this.version = message.Version.slice(0, maxNameLength);
    if (message.Observes) this.#observes = true;
  }

  /**
   * Records that the last attempt, on an earlier stream, failed: a restarted watcher then knows a failing node before
   * the node tries again. Does nothing after the first acknowledgement, which replaces it.
   */
  failedBefore(failure: ApplyFailure | undefined): void {
    if (failure !== undefined && !this.#hasAcknowledged) this.#error = errorText(failure.Error);
  }

  /**
   * Records that it has received the batches up to a revision. Errors: INVALID_ARGUMENT for a revision that was never
   * sent.
   */
  received(revision: number): void {
    this.#mustBeSent(revision, "Received");
    this.#receive(revision);
  }

  /** Records a batch that was written with its marker. */
  sent(delivery: Delivery): void {
    const { kind, metrics, now, followers } = this.#options;
    const nowMs = now();
    this.#sent = delivery.revision;
    this.#sentAtMs = nowMs;
    this.#pending.add(delivery.after, delivery.revision, nowMs);
    metrics.sent[kind].add(delivery.byteCount);
    for (const follower of followers) follower.sent?.(this, delivery, nowMs);
  }

  /** Records an acknowledgement. Errors: INVALID_ARGUMENT for a revision that was never sent. */
  acknowledge(ack: Acknowledgement): void {
    const { applied, failed, timings } = ack;
    const newest = Math.max(applied, failed);
    this.#mustBeSent(newest, "Ack");
    this.#receive(newest);
    const nowMs = this.#options.now();
    this.#hasAcknowledged = true;
    // A revision that was applied after a failure ends the failure.
    if (ack.earlier.length > 0) this.#fail(0, "");
    for (const earlier of ack.earlier) {
      if (earlier.applied <= applied) this.#apply(earlier.applied, nowMs - earlier.ageMs, undefined);
    }
    if (timings !== undefined) this.#keep(timings);
    this.#apply(applied, nowMs - ack.ageMs, timings);
    this.#fail(failed, ack.error);
  }

  #receive(revision: number): void {
    if (revision <= this.#received) return;
    this.#received = revision;
    const pending = this.#pending;
    for (let batch = pending.receiveNext(revision); batch !== undefined; batch = pending.receiveNext(revision)) {
      for (const follower of this.#options.followers) follower.received?.(this, batch);
    }
  }

  #apply(applied: number, atMs: number, timings: ApplyTimings | undefined): void {
    const { metrics, followers } = this.#options;
    const pending = this.#pending;
    const sinceMs = pending.oldestSentAtMs;
    let batch = pending.takeOldest(applied);
    // Another view may have the same revision as the one that was acknowledged last.
    if (applied <= this.#acknowledged && batch === undefined) return;
    // A subscriber that resumed acknowledges again what it applied before this stream.
    if (sinceMs !== undefined && atMs >= sinceMs) metrics.applySeconds.observe((atMs - sinceMs) / 1_000);
    this.#acknowledged = applied;
    this.#appliedAtMs = atMs;
    for (; batch !== undefined; batch = pending.takeOldest(applied)) {
      for (const follower of followers) follower.applied?.(this, batch, atMs, timings);
    }
  }

  /** `failed` is 0 for a success. */
  #fail(failed: number, error: string): void {
    const { metrics, followers } = this.#options;
    if (failed > 0 && failed !== this.#failed) metrics.applyFailures.inc();
    this.#failed = failed;
    this.#error = failed === 0 ? "" : errorText(error);
    if (failed === 0) return;
    for (const batch of this.#pending.upTo(failed)) {
      for (const follower of followers) follower.failed?.(this, batch, this.#error);
    }
  }

  #keep({ waitMs, renderMs, commitMs }: ApplyTimings): void {
    this.#hasTimings = true;
    this.#waitMs = waitMs;
    this.#renderMs = renderMs;
    this.#commitMs = commitMs;
  }

  #mustBeSent(revision: number, field: string): void {
    if (revision <= this.#sent) return;
    throw new ConnectError(
      `${field} names revision ${revision}, but the last revision sent is ${this.#sent}`,
      Code.InvalidArgument,
    );
  }
}

interface SubscriberOptions {
  readonly id: number;
  readonly kind: SubscriberKind;
  /** *Shape:* `10.0.0.7:43210`, `[fd00::7]:43210`, or "" if there is none (a unix socket, this process). */
  readonly peer: string;
  readonly store: Store;
  readonly metrics: StreamMetrics;
  readonly followers: readonly DeliveryFollower[];
  /** True if the client is a tool of people, such as grpcurl, by its user agent. Default false. */
  readonly isTool?: boolean | undefined;
  /** Milliseconds since 1970, with fractions. */
  readonly now: () => number;
  readonly close: () => void;
}

const maxNameLength = 100;
const maxErrorLength = 1_000;

/** Returns the error of a failed attempt, which is never empty. */
function errorText(error: string): string {
  return error.slice(0, maxErrorLength) || "unknown error";
}
