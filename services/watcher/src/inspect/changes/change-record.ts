import type { ApplyTimings } from "../../stream/session/acknowledgement.ts";
import { Distribution } from "./distribution.ts";

/** An object that came, changed or went with a revision. */
export interface ChangedObject {
  readonly kind: "service" | "endpoints" | "node";
  /** *Shape:* `namespace/name` of the Service, or the name of the Node. */
  readonly key: string;
  readonly isDeleted: boolean;
}

/** What is known of a revision when the store makes it. */
export interface ChangeFacts {
  readonly revision: number;
  /** At most {@link maxObjects} of them. */
  readonly objects: readonly ChangedObject[];
  readonly objectCount: number;
  /** Part of the source's first complete list. */
  readonly isFirstList: boolean;
  /** Kind of the source; "" if it does not say. */
  readonly source: string;
  /** In milliseconds since 1970, as all times here. */
  readonly triggeredAtMs?: number | undefined;
  readonly receivedAtMs?: number | undefined;
  readonly storedAtMs: number;
}

/** Most objects that a record names. */
export const maxObjects = 100;

/** Most failures that a record tells of. */
const maxFailures = 10;

/** Who speaks of a change. */
export interface Reporter {
  readonly nodeName: string;
  readonly program: string;
}

/** The stages of a change's way to one subscriber, in milliseconds. They add up to the whole. */
export interface WayTimes {
  /** From the store until it was handed to the connection. */
  readonly sendMs: number;
  /** On the network, there and back: the rest. */
  readonly transitMs: number;
  /** On the node; undefined if it does not say. */
  readonly timings?: ApplyTimings | undefined;
  readonly totalMs: number;
}

/** The stages over all subscribers. */
export type Stages = Readonly<Record<"send" | "transit" | "wait" | "render" | "commit" | "total", Distribution>>;

/**
 * One revision of the store and what became of it.
 *
 * *Bound:* 100 objects, 10 failures, 6 distributions; nothing grows with the number of subscribers.
 */
export class ChangeRecord {
  readonly facts: ChangeFacts;
  firstSentAtMs: number | undefined;
  lastSentAtMs: number | undefined;
  lastAppliedAtMs: number | undefined;
  toldCount = 0;
  receivedCount = 0;
  appliedCount = 0;
  failedCount = 0;
  lostCount = 0;
  /** Undefined until somebody applied it. */
  stages: Stages | undefined;
  slowest: (Reporter & WayTimes) | undefined;
  readonly failures: (Reporter & { readonly error: string })[] = [];

  constructor(facts: ChangeFacts) {
    this.facts = facts;
  }

  told(nowMs: number): void {
    this.toldCount += 1;
    this.firstSentAtMs ??= nowMs;
    this.lastSentAtMs = nowMs;
  }

  applied(by: Reporter, sentAtMs: number, nowMs: number, timings: ApplyTimings | undefined): void {
    const totalMs = nowMs - this.facts.storedAtMs;
    // Of batches that were joined, because very many wait, only the first one's time is known.
    const sendMs = Math.max(0, sentAtMs - this.facts.storedAtMs);
    const onNodeMs = timings === undefined ? 0 : timings.waitMs + timings.renderMs + timings.commitMs;
    const transitMs = Math.max(0, totalMs - sendMs - onNodeMs);
    this.appliedCount += 1;
    this.lastAppliedAtMs = Math.max(this.lastAppliedAtMs ?? 0, nowMs);
    this.stages ??= makeStages();
    this.stages.send.add(sendMs);
    this.stages.total.add(totalMs);
    // Of one that does not say where the time went on the node, nobody knows how much of it was on the way.
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

  failed(by: Reporter, error: string): void {
    this.failedCount += 1;
    if (this.failures.length < maxFailures) {
      this.failures.push({ nodeName: by.nodeName, program: by.program, error });
    }
  }
}

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
