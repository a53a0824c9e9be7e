import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Change,
  ChangeSchema,
  type DistributionSchema,
  ObjectKind,
  type SlowestSubscriberSchema,
} from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { durationOf, timestampOf } from "@kpng/model/wire/time-message.ts";
import type { ChangedObject, ChangeRecord, Reporter, StageTimes } from "../changes/change-record.ts";
import type { Distribution } from "../changes/distribution.ts";
import { timingsMessage } from "./subscriber-row.ts";

/**
 * Converts a change record to its message in the inspection API, which `kpng get changes` and `kpng trace` show.
 * Separate, because the methods ListChanges and WatchChanges both call it. Each kind of row has a file of its own.
 */
export function changeRow(record: ChangeRecord): Change {
  const { facts, stages } = record;
  const timeOf = (ms: number | undefined) => (ms === undefined ? undefined : timestampOf(ms));
  return create(ChangeSchema, {
    revision: BigInt(facts.revision),
    objects: facts.objects.map(({ kind, key, isDeleted }) => ({ kind: objectKinds[kind], key, isDeleted })),
    objectCount: BigInt(facts.objectCount),
    isFirstList: facts.isFirstList,
    source: facts.source,
    ...setIfDefined("triggeredAt", timeOf(facts.triggeredAtMs)),
    ...setIfDefined("receivedAt", timeOf(facts.receivedAtMs)),
    storedAt: timestampOf(facts.storedAtMs),
    ...setIfDefined("firstSentAt", timeOf(record.firstSentAtMs)),
    ...setIfDefined("lastSentAt", timeOf(record.lastSentAtMs)),
    ...setIfDefined("lastAppliedAt", timeOf(record.lastAppliedAtMs)),
    toldCount: record.sentCount,
    receivedCount: record.receivedCount,
    appliedCount: record.appliedCount,
    failedCount: record.failedCount,
    lostCount: record.lostCount,
    otherCount: record.otherCount,
    ...setIfDefined(
      "stages",
      stages && {
        send: distributionMessage(stages.send),
        transit: distributionMessage(stages.transit),
        wait: distributionMessage(stages.wait),
        render: distributionMessage(stages.render),
        commit: distributionMessage(stages.commit),
        total: distributionMessage(stages.total),
      },
    ),
    ...setIfDefined("slowest", record.slowest && slowestMessage(record.slowest)),
    failures: record.failures.map(({ nodeName, program, error }) => ({ node: nodeName, program, error })),
  });
}

const objectKinds: Readonly<Record<ChangedObject["kind"], ObjectKind>> = {
  service: ObjectKind.SERVICE,
  endpoints: ObjectKind.ENDPOINTS,
  node: ObjectKind.NODE,
};

function distributionMessage(times: Distribution): MessageInitShape<typeof DistributionSchema> {
  return {
    count: times.count,
    p50: durationOf(times.percentileMs(0.5)),
    p99: durationOf(times.percentileMs(0.99)),
    max: durationOf(times.maxMs),
  };
}

function slowestMessage(slowest: Reporter & StageTimes): MessageInitShape<typeof SlowestSubscriberSchema> {
  const { nodeName, program, sendMs, transitMs, timings, totalMs } = slowest;
  return {
    node: nodeName,
    program,
    send: durationOf(sendMs),
    transit: durationOf(transitMs),
    ...setIfDefined("timings", timings && timingsMessage(timings)),
    total: durationOf(totalMs),
  };
}
