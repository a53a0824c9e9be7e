import { type Change, ChangeSchema, ObjectKindSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { formatAge, formatClock, formatCount, formatDuration, formatEnum } from "../print/format.ts";
import type { RowKind } from "../print/output.ts";

/** Most objects that a table names. */
const maxNamed = 2;

export const changeTable: RowKind<typeof ChangeSchema> = {
  schema: ChangeSchema,
  columns: [
    { title: "REVISION", cell: ({ revision }) => String(revision) },
    { title: "AGE", cell: ({ storedAt }) => formatAge(storedAt) },
    { title: "WHAT", cell: (change) => formatObjects(change) },
    { title: "TOLD", cell: ({ toldCount }) => String(toldCount) },
    { title: "APPLIED", cell: ({ appliedCount }) => String(appliedCount) },
    { title: "FAILED", cell: ({ failedCount }) => (failedCount === 0 ? "" : String(failedCount)) },
    { title: "MEDIAN", cell: ({ stages }) => formatDuration(stages?.total?.p50) },
    { title: "P99", cell: ({ stages }) => formatDuration(stages?.total?.p99) },
    { title: "LAST", cell: ({ stages }) => formatDuration(stages?.total?.max) },
    { title: "SLOWEST", cell: ({ slowest }) => slowest?.node ?? "" },
    { title: "STORED", cell: ({ storedAt }) => formatClock(storedAt), isWide: true },
    { title: "SOURCE", cell: ({ source }) => source, isWide: true },
    { title: "RECEIVED", cell: ({ receivedCount }) => String(receivedCount), isWide: true },
    { title: "LOST", cell: ({ lostCount }) => (lostCount === 0 ? "" : String(lostCount)), isWide: true },
    {
      title: "ERROR",
      cell: ({ failures: [first] }) => (first === undefined ? "" : `${first.node}: ${first.error}`),
      isWide: true,
    },
  ],
};

/** *Shape:* `endpoints default/web, service default/dns gone, 3 more`. */
export function formatObjects({ objects, objectCount, isFirstList }: Change, most: number = maxNamed): string {
  if (isFirstList) return `first list: ${formatCount(Number(objectCount), "object")}`;
  const named = objects
    .slice(0, most)
    .map(({ kind, key, isDeleted }) => `${formatEnum(ObjectKindSchema, kind)} ${key}${isDeleted ? " gone" : ""}`);
  const others = Number(objectCount) - named.length;
  if (others > 0) named.push(`${others} more`);
  return named.length === 0 ? "service CIDRs, or a kind that is complete now" : named.join(", ");
}
