import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  ApplyState,
  type ApplyTimingsSchema,
  SubscriberKind as KindMessage,
  type Subscriber as SubscriberMessage,
  SubscriberSchema,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { durationOf, timestampOf } from "@kpng/model/wire/time-message.ts";
import type { ApplyTimings } from "../../stream/session/acknowledgement.ts";
import type { Subscriber } from "../../stream/session/subscribers.ts";

/**
 * Converts a subscriber (the reader of one stream: a node's backend or a relay) to its message in the inspection API,
 * for `kpng get subscribers`. `newest` is the newest revision of the store.
 *
 * `sentRevision` is the newest revision up to which nothing is left to send to the subscriber.
 *
 * Separate, because the methods ListSubscribers and WatchSubscribers both call it. Rows of nodes and the status page
 * share the other functions of this file.
 */
export function subscriberMessage(subscriber: Subscriber, newest: number): SubscriberMessage {
  const { failure, timings, sentAtMs, appliedAtMs, unappliedSinceMs } = subscriber;
  const timeOf = (ms: number | undefined) => (ms === undefined || ms === 0 ? undefined : timestampOf(ms));
  return create(SubscriberSchema, {
    id: BigInt(subscriber.id),
    kind: kindToWire(subscriber),
    node: subscriber.nodeName,
    serviceProxyName: subscriber.proxyName,
    peer: subscriber.peer,
    program: subscriber.program,
    version: subscriber.version,
    openedAt: timestampOf(subscriber.openedAtMs),
    state: stateOf(subscriber, newest),
    sentRevision: BigInt(subscriber.upToDateRevision),
    ...setIfDefined("sentAt", timeOf(sentAtMs)),
    receivedRevision: BigInt(subscriber.receivedRevision),
    hasAcknowledged: subscriber.hasAcknowledged,
    appliedRevision: BigInt(subscriber.appliedRevision),
    ...setIfDefined("appliedAt", timeOf(appliedAtMs)),
    revisionsBehind: BigInt(Math.max(0, newest - knownRevision(subscriber))),
    ...setIfDefined("unappliedSince", timeOf(unappliedSinceMs)),
    failedRevision: BigInt(failure?.revision ?? 0),
    error: failure?.error ?? "",
    ...setIfDefined("timings", timings && timingsMessage(timings)),
  });
}

/** Converts the kind of a subscriber to its enum in the inspection API. */
export function kindToWire({ kind, isObserver }: Pick<Subscriber, "kind" | "isObserver">): KindMessage {
  if (isObserver) return KindMessage.OBSERVER;
  return kind === "local" ? KindMessage.NODE : KindMessage.RELAY;
}

/**
 * Newest revision that a subscriber is known to have applied. For subscribers that never acknowledge (KPNG's clients,
 * relays), the newest revision that they have certainly received.
 */
export function knownRevision(subscriber: Subscriber): number {
  return subscriber.hasAcknowledged ? subscriber.appliedRevision : subscriber.receivedRevision;
}

/**
 * Returns the progress of a subscriber:
 *
 * - FAILING: its last attempt to apply a batch failed.
 * - BEHIND: it has not yet applied (or received) the newest revision, or the store is still empty.
 * - CURRENT: it has applied the newest revision.
 * - RECEIVED: it has received the newest revision and never acknowledges.
 */
export function stateOf(subscriber: Subscriber, newest: number): ApplyState {
  if (subscriber.failure !== undefined) return ApplyState.FAILING;
  if (newest === 0 || knownRevision(subscriber) < newest) return ApplyState.BEHIND;
  return subscriber.hasAcknowledged ? ApplyState.CURRENT : ApplyState.RECEIVED;
}

/** Converts the durations that a node reported. */
export function timingsMessage({
  waitMs,
  renderMs,
  commitMs,
}: ApplyTimings): MessageInitShape<typeof ApplyTimingsSchema> {
  return { wait: durationOf(waitMs), render: durationOf(renderMs), commit: durationOf(commitMs) };
}
