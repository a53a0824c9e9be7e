import { recordSpan, type Tracing } from "@kpng/process/trace/tracing.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { TracedRevision } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import type { Delivery, Subscriber } from "../stream/session/subscriber.ts";
import type { DeliveryFollower } from "../stream/session/subscribers.ts";

/** A revision counts as sent when nobody was sent it for so long, in milliseconds. */
const quietMs = 250;

/** After this long it does in any case; who is sent it later is in spans of its own. */
const longestMs = 10_000;

/** Most audiences that have spans of their own; all others share one. */
const maxAudiences = 10;

/** What those who are told the same of one revision were sent. */
interface Sends {
  readonly kind: string;
  readonly zone: string;
  readonly proxyName: string;
  /** When it was known what the first of them must be told. */
  readonly computedAtMs: number;
  lastSentAtMs: number;
  subscriberCount: number;
  byteCount: number;
}

/**
 * Records how long a traced revision took to compute and to send, once for each audience and not for each subscriber.
 *
 * *Bound:* the traced revisions of the last seconds. *Cost* for one that is not traced: a comparison.
 */
export class TraceSends implements DeliveryFollower {
  readonly #store: Store;
  readonly #tracing: Tracing;
  readonly #sending = new Map<number, { readonly traced: TracedRevision; readonly audiences: Map<string, Sends> }>();

  constructor(store: Store, tracing: Tracing) {
    this.#store = store;
    this.#tracing = tracing;
  }

  sent(subscriber: Subscriber, { after, revision, byteCount, computedAtMs }: Delivery, sentAtMs: number): void {
    const traced = this.#store.snapshot.traces.findLast((one) => one.revision <= revision);
    // A whole view is sent because a stream began, and not because something changed.
    if (traced === undefined || after === 0 || traced.revision <= after) return;
    const sends = this.#sendsOf(traced, subscriber, computedAtMs);
    sends.lastSentAtMs = sentAtMs;
    sends.subscriberCount += 1;
    sends.byteCount += byteCount;
  }

  #sendsOf(traced: TracedRevision, { kind, nodeName, proxyName }: Subscriber, computedAtMs: number): Sends {
    let sending = this.#sending.get(traced.revision);
    if (sending === undefined) {
      sending = { traced, audiences: new Map() };
      this.#sending.set(traced.revision, sending);
      this.#endWhenQuiet(traced.revision, computedAtMs);
    }
    const { audiences } = sending;
    const zone = this.#store.snapshot.nodes.get(nodeName)?.zone ?? "";
    const wanted = `${kind} ${zone} ${proxyName}`;
    const key = audiences.has(wanted) || audiences.size < maxAudiences ? wanted : "";
    const held = audiences.get(key);
    if (held !== undefined) return held;
    const names = key === "" ? { kind: "", zone: "", proxyName: "" } : { kind, zone, proxyName };
    const sends = { ...names, computedAtMs, lastSentAtMs: computedAtMs, subscriberCount: 0, byteCount: 0 };
    audiences.set(key, sends);
    return sends;
  }

  #endWhenQuiet(revision: number, beganAtMs: number): void {
    const look = (): void => {
      const sending = this.#sending.get(revision);
      if (sending === undefined) return;
      const lastMs = Math.max(...[...sending.audiences.values()].map(({ lastSentAtMs }) => lastSentAtMs));
      const nowMs = wallClockMs();
      if (nowMs - lastMs < quietMs && nowMs - beganAtMs < longestMs) setTimeout(look, quietMs).unref();
      else this.#end(revision, sending.traced, sending.audiences.values());
    };
    setTimeout(look, quietMs).unref();
  }

  #end(revision: number, { traceparent: parent, storedAtMs }: TracedRevision, audiences: Iterable<Sends>): void {
    this.#sending.delete(revision);
    for (const { kind, zone, proxyName, computedAtMs, lastSentAtMs, subscriberCount, byteCount } of audiences) {
      const audience = {
        "kpng.subscriber_kind": kind,
        "kpng.service_proxy_name": proxyName,
        "cloud.availability_zone": zone,
        "kpng.subscribers": subscriberCount,
      };
      recordSpan(this.#tracing, "view.compute", {
        parent,
        startMs: storedAtMs,
        endMs: computedAtMs,
        attributes: audience,
      });
      recordSpan(this.#tracing, "stream.send", {
        kind: "producer",
        parent,
        startMs: computedAtMs,
        endMs: lastSentAtMs,
        attributes: { ...audience, "kpng.bytes": byteCount },
      });
    }
  }
}
