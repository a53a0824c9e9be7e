import { Code, ConnectError } from "@connectrpc/connect";
import type { ApplyFailure, Subscriber as SubscriberMessage } from "@kpng/model/gen/localv1/api_pb.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import type { Store } from "../../store/store.ts";
import type { Acknowledgement, ApplyTimings } from "./acknowledgement.ts";
import { Rounds } from "./rounds.ts";
import { Scheduler } from "./scheduler.ts";
import { makeStreamMetrics, type StreamMetrics } from "./stream-metrics.ts";

/**
 * The subscribers of all open streams, the followers of their batches, and the scheduler that shares the thread among
 * them.
 */
export class Subscribers {
  readonly store: Store;
  /** Shares the thread between all streams and queries of a watcher. */
  readonly scheduler: Scheduler;
  readonly rounds: Rounds;
  /** Returns fractional milliseconds since 1970. */
  readonly now: () => number;
  readonly #open = new Set<Subscriber>();
  readonly #followers: DeliveryFollower[] = [];
  readonly #context: SubscriberContext;
  #lastId = 0;
  #version = 0;

  constructor(store: Store, registry: Registry, now: () => number = wallClockMs, scheduler = new Scheduler()) {
    this.store = store;
    this.scheduler = scheduler;
    this.rounds = new Rounds(store, scheduler);
    this.now = now;
    this.#context = {
      metrics: makeStreamMetrics(registry, () => this.#open, now),
      followers: this.#followers,
      now,
      opened: (subscriber) => this.#open.add(subscriber),
      closed: (subscriber) => this.#open.delete(subscriber),
      updated: () => this.#version++,
    };
  }

  /** The open streams whose client has requested a view that it may read, in the order of these requests. */
  get open(): ReadonlySet<Subscriber> {
    return this.#open;
  }

  /** Incremented whenever a stream opens, closes, sends or receives something, so that watches detect changes. */
  get version(): number {
    return this.#version;
  }

  observe(follower: DeliveryFollower): void {
    this.#followers.push(follower);
  }

  /**
   * Returns a new stream, which does not count until its `open` is called. The caller closes it when it ends, for any
   * reason. `isTool` is true for a tool such as grpcurl, which counts as an observer.
   */
  make(kind: SubscriberKind, peer: string, isTool = false): Subscriber {
    this.#lastId++;
    return new Subscriber(this.#context, this.#lastId, kind, peer, isTool);
  }
}

/**
 * The state of one open stream. `WatchStream` updates it; metrics and inspection read it.
 *
 * A revision that does not change the view causes no batch, so a subscriber may be up to date with a newer revision
 * than the revision of its last batch; see {@link upToDateRevision} and {@link appliedRevision}.
 */
export class Subscriber {
  readonly id: number;
  readonly kind: SubscriberKind;
  /** *Shape:* `10.0.0.7:43210`, `[fd00::7]:43210`, or "" if there is none (a unix socket, this process). */
  readonly peer: string;
  /** Time at which the stream was opened, in milliseconds since 1970. */
  readonly openedAtMs: number;
  readonly #context: SubscriberContext;
  nodeName = "";
  proxyName = "";
  /** Name and version of the client program; "" if the client did not send them. */
  program = "";
  version = "";
  /** True if the subscriber reads for a person or a recorder, and is neither a node's proxy nor a relay. */
  isObserver: boolean;
  /** Revision of the last batch; 0 before the first batch. */
  sentRevision = 0;
  /** True once the subscriber has sent an acknowledgement, which relays and KPNG's own clients never do. */
  hasAcknowledged = false;
  /** The timings from the last acknowledgement that contained any. */
  timings: ApplyTimings | undefined;
  /** Newest revision that needed no batch; 0 if there is none. */
  #skippedRevision = 0;
  #receivedRevision = 0;
  #acknowledgedRevision = 0;
  #failedRevision = 0;
  #error = "";
  /** Batches that wait for an acknowledgement (oldest first), and the number of these that were received. */
  readonly #pending: PendingBatch[] = [];
  #receivedCount = 0;

  constructor(context: SubscriberContext, id: number, kind: SubscriberKind, peer: string, isTool: boolean) {
    this.#context = context;
    this.id = id;
    this.kind = kind;
    this.peer = peer;
    this.isObserver = isTool;
    this.openedAtMs = context.now();
  }

  /** Makes the stream one of `Subscribers.open`. Has no effect if it already is. */
  open(): this {
    const { opened, updated } = this.#context;
    opened(this);
    updated();
    return this;
  }

  close(): void {
    const { followers, closed, updated } = this.#context;
    closed(this);
    updated();
    for (const batch of this.hasAcknowledged ? this.#pending : this.#pending.slice(this.#receivedCount)) {
      for (const follower of followers) follower.lost?.(this, batch);
    }
  }

  get isNode(): boolean {
    return this.kind === "local" && !this.isObserver;
  }

  /** Newest revision for which nothing remains to be sent; 0 before the first batch. */
  get upToDateRevision(): number {
    return this.sentRevision === 0 ? 0 : Math.max(this.sentRevision, this.#skippedRevision);
  }

  /**
   * Newest revision that the subscriber has certainly received, because it acknowledged that revision or requested the
   * next batch.
   */
  get receivedRevision(): number {
    return this.#receivedRevision === this.sentRevision ? this.upToDateRevision : this.#receivedRevision;
  }

  /** Newest revision that the subscriber has applied completely; 0 if there is none, or if it never acknowledges. */
  get appliedRevision(): number {
    return this.#acknowledgedRevision === this.sentRevision ? this.upToDateRevision : this.#acknowledgedRevision;
  }

  /**
   * The revision and the error of the last attempt, if that attempt failed. The revision is 0 if the attempt was on an
   * earlier stream.
   */
  get failure(): { readonly revision: number; readonly error: string } | undefined {
    return this.#error === "" ? undefined : { revision: this.#failedRevision, error: this.#error };
  }

  /**
   * Time, in milliseconds since 1970, at which the oldest unapplied batch was sent (or the oldest unreceived batch, if
   * the subscriber has never acknowledged anything); undefined if there is no such batch, and for observers, which may
   * pause.
   */
  get unappliedSinceMs(): number | undefined {
    if (this.isObserver && !this.hasAcknowledged) return undefined;
    return this.#pending[this.hasAcknowledged ? 0 : this.#receivedCount]?.sentAtMs;
  }

  introduce(message: SubscriberMessage | undefined): void {
    if (message === undefined) return;
    this.program = message.Name.slice(0, maxNameLength);
    this.version = message.Version.slice(0, maxNameLength);
    if (message.Observes) this.isObserver = true;
    this.#context.updated();
  }

  /**
   * Records a failure on an earlier stream, so that a restarted watcher knows about a failing node before the node's
   * next attempt. Ignored after the first acknowledgement.
   */
  failedBefore(failure: ApplyFailure | undefined): void {
    if (failure === undefined || this.hasAcknowledged) return;
    this.#error = errorText(failure.Error);
    this.#context.updated();
  }

  /** Records that the subscriber has received a revision. Errors: INVALID_ARGUMENT if that revision was never sent. */
  received(revision: number): void {
    this.#mustBeSent(revision, "Received");
    this.#receive(revision);
    this.#context.updated();
  }

  /** Records that a revision needs no batch, because it does not change the view. */
  skipped(revision: number): void {
    this.#skippedRevision = revision;
  }

  sent(delivery: Delivery): void {
    const { metrics, now, followers, updated } = this.#context;
    const nowMs = now();
    updated();
    // A subscriber that was up to date with a newer revision than that of its last batch remains so. It does not have
    // the new batch, even if another view has the same revision.
    const quietRevision = Math.min(this.upToDateRevision, delivery.revision - 1);
    if (this.#receivedRevision === this.sentRevision) this.#receivedRevision = quietRevision;
    if (this.#acknowledgedRevision === this.sentRevision) this.#acknowledgedRevision = quietRevision;
    this.sentRevision = delivery.revision;
    this.#pending.push({ after: delivery.after, revision: delivery.revision, sentAtMs: nowMs });
    if (this.#pending.length > maxPending) this.#mergeOldest();
    metrics.sentBytes.inc({ kind: this.kind }, delivery.byteCount);
    for (const follower of followers) follower.sent?.(this, delivery, nowMs);
  }

  /** Records an acknowledgement. Errors: INVALID_ARGUMENT if it names a revision that was never sent. */
  acknowledge({ applied, failed = 0, error = "", timings, ageMs = 0, earlier = [] }: Acknowledgement): void {
    const newest = Math.max(applied, failed);
    this.#mustBeSent(newest, "Ack");
    this.#receive(newest);
    this.#context.updated();
    const nowMs = this.#context.now();
    this.hasAcknowledged = true;
    // A revision that was applied after a failure ends the failure.
    if (earlier.length > 0) this.#fail(0, "");
    for (const one of earlier) {
      if (one.applied <= applied) this.#apply(one.applied, nowMs - one.ageMs, undefined);
    }
    this.timings = timings ?? this.timings;
    this.#apply(applied, nowMs - ageMs, timings);
    this.#fail(failed, error);
  }

  #receive(revision: number): void {
    // Not "<=": after a request for another node, or a change of the zone, another view may have the same revision.
    if (revision < this.#receivedRevision) return;
    this.#receivedRevision = revision;
    for (const batch of this.#pending.slice(this.#receivedCount)) {
      if (batch.revision > revision) break;
      this.#receivedCount += 1;
      for (const follower of this.#context.followers) follower.received?.(this, batch);
    }
  }

  #apply(applied: number, atMs: number, timings: ApplyTimings | undefined): void {
    const { metrics, followers } = this.#context;
    const sinceMs = this.#pending[0]?.sentAtMs;
    const count = this.#countUpTo(applied);
    // Another view may have the same revision as the last acknowledged one.
    if (applied <= this.#acknowledgedRevision && count === 0) return;
    // A subscriber that has resumed may acknowledge again a revision that it applied before this stream.
    if (count > 0 && sinceMs !== undefined && atMs >= sinceMs) metrics.applySeconds.observe((atMs - sinceMs) / 1_000);
    this.#acknowledgedRevision = applied;
    this.#receivedCount = Math.max(0, this.#receivedCount - count);
    for (const batch of this.#pending.splice(0, count)) {
      for (const follower of followers) follower.applied?.(this, batch, atMs, timings);
    }
  }

  #fail(failed: number, error: string): void {
    const { followers } = this.#context;
    this.#failedRevision = failed;
    this.#error = failed === 0 ? "" : errorText(error);
    if (failed === 0) return;
    for (const batch of this.#pending.slice(0, this.#countUpTo(failed))) {
      for (const follower of followers) follower.failed?.(this, batch, this.#error);
    }
  }

  #countUpTo(revision: number): number {
    const index = this.#pending.findIndex((batch) => batch.revision > revision);
    return index === -1 ? this.#pending.length : index;
  }

  /** Merges the two oldest batches. The merged batch also covers the revisions between the two. */
  #mergeOldest(): void {
    const [first, second, ...others] = this.#pending;
    if (first === undefined || second === undefined) return;
    // A whole view (0) covers no changes, so the merged batch keeps the start of the other batch.
    const merged = { ...second, after: first.after || second.after, sentAtMs: first.sentAtMs };
    this.#pending.splice(0, this.#pending.length, merged, ...others);
    // The merged batch counts as received if the first batch was.
    this.#receivedCount = Math.max(Math.min(1, this.#receivedCount), this.#receivedCount - 1);
  }

  #mustBeSent(revision: number, field: string): void {
    if (revision <= this.sentRevision) return;
    throw new ConnectError(
      `${field} names revision ${revision}, but the last revision sent is ${this.sentRevision}`,
      Code.InvalidArgument,
    );
  }
}

interface SubscriberContext {
  readonly metrics: StreamMetrics;
  readonly followers: readonly DeliveryFollower[];
  /** Returns fractional milliseconds since 1970. */
  readonly now: () => number;
  readonly opened: (subscriber: Subscriber) => void;
  readonly closed: (subscriber: Subscriber) => void;
  /** Called whenever data that a row of the inspection API shows may have changed. */
  readonly updated: () => void;
}

const maxNameLength = 100;
const maxErrorLength = 1_000;

function errorText(error: string): string {
  return error.slice(0, maxErrorLength) || "unknown error";
}

/**
 * Observes the batches of all subscribers, for metrics and traces. The methods run for each batch of each subscriber,
 * so they may cost a few counters for each revision in it, and must not throw. Times are in fractional milliseconds
 * since 1970.
 */
export interface DeliveryFollower {
  sent?(recipient: Recipient, delivery: Delivery, nowMs: number): void;
  received?(recipient: Recipient, batch: PendingBatch): void;
  /** Called when the subscriber has applied a batch. The subscriber may report the durations of the stages. */
  applied?(recipient: Recipient, batch: PendingBatch, atMs: number, timings: ApplyTimings | undefined): void;
  failed?(recipient: Recipient, batch: PendingBatch, error: string): void;
  /**
   * Called if the stream ended before the subscriber acknowledged a batch or, if it never acknowledges, received it.
   */
  lost?(recipient: Recipient, batch: PendingBatch): void;
}

/** The view that a stream carries: the view of one node, or of the whole cluster. */
export type SubscriberKind = "local" | "global";

export interface Delivery {
  /** The revision that the subscriber had before; 0 for a whole view. */
  readonly after: number;
  readonly revision: number;
  /** Size of the messages with their frame headers, in bytes. */
  readonly byteCount: number;
}

/** A batch that was sent and has not been acknowledged. */
export interface PendingBatch {
  /** The revision that the subscriber had before; 0 for a whole view. */
  readonly after: number;
  readonly revision: number;
  /** Time at which the batch was sent, in fractional milliseconds since 1970. */
  readonly sentAtMs: number;
}

/** Maximum number of pending batches of one subscriber; beyond it, the two oldest batches are merged. */
const maxPending = 128;

export type Recipient = Pick<
  Subscriber,
  "kind" | "isNode" | "nodeName" | "proxyName" | "program" | "sentRevision" | "receivedRevision" | "appliedRevision"
>;
