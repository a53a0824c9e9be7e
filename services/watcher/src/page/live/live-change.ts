import type { ChangeRecord, Stages } from "../../inspect/changes/change-record.ts";
import type { Distribution } from "../../inspect/changes/distribution.ts";
import type { Convergence, LiveChange, SlowestNode, Spread, StageName } from "./live-rows.ts";

/** Limits of what a row shows; `kpng get changes -o yaml` shows all. */
const maxObjects = 5;
const maxFailures = 3;
const maxErrorLength = 300;

/**
 * Converts a change record to a row of the status page. About 3 µs. `LiveState` calls it for each new and changed
 * record. Separate from `changeRow` of the inspect API, because the page gets fewer fields, once a second.
 */
export function liveChange(record: ChangeRecord): LiveChange {
  const { facts, stages, slowest } = record;
  return {
    revision: facts.revision,
    objects: facts.objects.slice(0, maxObjects).map(({ kind, key, isDeleted }) => {
      return `${isDeleted ? "deleted " : ""}${kind} ${key}`;
    }),
    objectCount: facts.objectCount,
    isFirstList: facts.isFirstList,
    source: facts.source,
    receivedAtMs: facts.receivedAtMs ?? 0,
    storedAtMs: facts.storedAtMs,
    sentCount: record.sentCount,
    appliedCount: record.appliedCount,
    failedCount: record.failedCount,
    lostCount: record.lostCount,
    ...(stages === undefined ? {} : { total: spread(stages.total), stages: spreads(stages) }),
    ...(slowest === undefined ? {} : { slowest: slowestNode(slowest) }),
    failures: record.failures.slice(0, maxFailures).map(({ nodeName, error }) => {
      return { node: nodeName, error: error.slice(0, maxErrorLength) };
    }),
  };
}

/** Returns the convergence of a change; undefined if no node has applied it, or it was part of the first lists. */
export function convergenceOf({ facts, stages }: ChangeRecord): Convergence | undefined {
  if (stages === undefined || facts.isFirstList) return undefined;
  const { total } = stages;
  return [facts.revision, facts.storedAtMs, rounded(total.percentileMs(0.5)), rounded(total.maxMs)];
}

const stageNames: readonly StageName[] = ["send", "transit", "wait", "render", "commit"];

function spreads(stages: Stages): LiveChange["stages"] {
  const known = stageNames.filter((name) => stages[name].count > 0);
  return Object.fromEntries(known.map((name) => [name, spread(stages[name])]));
}

function spread(times: Distribution): Spread {
  return [rounded(times.percentileMs(0.5)), rounded(times.percentileMs(0.99)), rounded(times.maxMs)];
}

function slowestNode({
  nodeName,
  sendMs,
  transitMs,
  timings,
  totalMs,
}: NonNullable<ChangeRecord["slowest"]>): SlowestNode {
  const onNode = timings && {
    wait: rounded(timings.waitMs),
    render: rounded(timings.renderMs),
    commit: rounded(timings.commitMs),
  };
  return {
    node: nodeName,
    stages: { send: rounded(sendMs), transit: rounded(transitMs), ...onNode },
    totalMs: rounded(totalMs),
  };
}

/** In microseconds' precision: fewer digits in the JSON. */
function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
