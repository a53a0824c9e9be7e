import type { ApplyTimings } from "../../stream/session/acknowledgement.ts";
import { Distribution } from "./distribution.ts";

/**
 * One revision of the store, and how far it has reached the subscribers.
 *
 * *Bound:* 100 objects, 10 failures and 6 distributions, independent of the number of subscribers.
 *
 * `RecentChanges` keeps the newest ones and updates them: it decides which reports count for which record. `changeRow`
 * and `liveChange` convert records for the inspect API and the status page.
 */
export class ChangeRecord {
  readonly facts: ChangeFacts;
  /** Version of `RecentChanges` with which the record was updated last, so that a reader can skip unchanged records. */
  version = 0;
  firstSentAtMs: number | undefined;
  lastSentAtMs: number | undefined;
  lastAppliedAtMs: number | undefined;
  sentCount = 0;
  receivedCount = 0;
  appliedCount = 0;
  failedCount = 0;
  lostCount = 0;
  /** Relays and observers to which it was sent. All other counts are of nodes. */
  otherCount = 0;
  /** Undefined until the first subscriber has applied the revision. */
  stages: Stages | undefined;
  slowest: (Reporter & StageTimes) | undefined;
  readonly failures: (Reporter & { readonly error: string })[] = [];

  constructor(facts: ChangeFacts) {
    this.facts = facts;
  }

  /** A batch with the revision was sent. */
  sent(nowMs: number): void {
    this.sentCount += 1;
    this.firstSentAtMs ??= nowMs;
    this.lastSentAtMs = nowMs;
  }

  /** A subscriber has applied the revision. */
  applied(by: Reporter, sentAtMs: number, nowMs: number, timings: ApplyTimings | undefined): void {
    const totalMs = nowMs - this.facts.storedAtMs;
    // The pending batches of a slow subscriber are merged, and then only the send time of the first one is known.
    const sendMs = Math.max(0, sentAtMs - this.facts.storedAtMs);
    const onNodeMs = timings === undefined ? 0 : timings.waitMs + timings.renderMs + timings.commitMs;
    const transitMs = Math.max(0, totalMs - sendMs - onNodeMs);
    this.appliedCount += 1;
    this.lastAppliedAtMs = Math.max(this.lastAppliedAtMs ?? 0, nowMs);
    this.stages ??= makeStages();
    this.stages.send.add(sendMs);
    this.stages.total.add(totalMs);
    // Without durations from the node, the time on the network is unknown.
    if (timings !== undefined) {
      this.stages.transit.add(transitMs);
      this.stages.wait.add(timings.waitMs);
      this.stages.render.add(timings.renderMs);
      this.stages.commit.add(timings.commitMs);
    }
    if (this.slowest === undefined || totalMs > this.slowest.totalMs) {
      this.slowest = { nodeName: by.nodeName, program: by.program, sendMs, transitMs, timings, totalMs };
    }
  }

  /** A subscriber failed to apply the revision. */
  failed(by: Reporter, error: string): void {
    this.failedCount += 1;
    if (this.failures.length < maxFailures) {
      this.failures.push({ nodeName: by.nodeName, program: by.program, error });
    }
  }
}

/** An object that a revision added, changed or deleted. */
export interface ChangedObject {
  readonly kind: "service" | "endpoints" | "node";
  /** *Shape:* `namespace/name` of the Service, or the name of the Node. */
  readonly key: string;
  readonly isDeleted: boolean;
}

/** Facts about a revision that are known when the store makes it. */
export interface ChangeFacts {
  readonly revision: number;
  /** The first {@link maxObjects} changed objects. */
  readonly objects: readonly ChangedObject[];
  readonly objectCount: number;
  /** True if the revision is part of the first lists of the source. */
  readonly isFirstList: boolean;
  /** Kind of the source; "" if unknown. */
  readonly source: string;
  /** In milliseconds since 1970, like all times here. */
  readonly triggeredAtMs?: number | undefined;
  readonly receivedAtMs?: number | undefined;
  readonly storedAtMs: number;
}

/** Limit for the objects in a record. */
export const maxObjects = 100;

/** Limit for the failures in a record. */
const maxFailures = 10;

/** Subscriber that reported about a change. */
export interface Reporter {
  readonly nodeName: string;
  readonly program: string;
}

/** Durations of the stages of a change for one subscriber, in milliseconds. They add up to the total. */
export interface StageTimes {
  /** From the store until the batch was written to the connection. */
  readonly sendMs: number;
  /** On the network, in both directions: the remainder. */
  readonly transitMs: number;
  /** On the node; undefined if the node does not report it. */
  readonly timings?: ApplyTimings | undefined;
  readonly totalMs: number;
}

/** Distributions of the stages over all subscribers. */
export type Stages = Readonly<Record<"send" | "transit" | "wait" | "render" | "commit" | "total", Distribution>>;

function makeStages(): Stages {
  return {
    send: new Distribution(),
    transit: new Distribution(),
    wait: new Distribution(),
    render: new Distribution(),
    commit: new Distribution(),
    total: new Distribution(),
  };
}
