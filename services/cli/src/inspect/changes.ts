import { type Change, ChangeSchema, ObjectKindSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { runList, watchOption } from "./list.ts";
import { outputOptions } from "./print/output.ts";
import type { TableSpec } from "./print/table.ts";
import { formatAge, formatClock, formatCount, formatDuration, formatEnum } from "./print/text.ts";
import type { InspectCommand } from "./query/client.ts";
import {
  allNamespacesOption,
  limitOption,
  namespaceOption,
  serviceFilterOption,
  splitService,
} from "./query/filters.ts";

/**
 * Columns for changes of the cluster, with how many nodes applied each. `kpng get changes` prints them, and `kpng top`
 * and `kpng describe service` print the newest changes.
 */
export const changeTable: TableSpec<typeof ChangeSchema> = {
  schema: ChangeSchema,
  columns: [
    { title: "REVISION", cell: ({ revision }) => String(revision) },
    { title: "AGE", cell: ({ storedAt }) => formatAge(storedAt) },
    { title: "CHANGE", cell: (change) => formatObjects(change) },
    { title: "SENT", cell: ({ toldCount }) => String(toldCount) },
    { title: "APPLIED", cell: ({ appliedCount }) => String(appliedCount) },
    { title: "FAILED", cell: ({ failedCount }) => (failedCount === 0 ? "" : String(failedCount)) },
    { title: "LOST", cell: ({ lostCount }) => (lostCount === 0 ? "" : String(lostCount)) },
    { title: "OTHERS", cell: ({ otherCount }) => (otherCount === 0 ? "" : String(otherCount)) },
    { title: "MEDIAN", cell: ({ stages }) => formatDuration(stages?.total?.p50) },
    { title: "P99", cell: ({ stages }) => formatDuration(stages?.total?.p99) },
    { title: "MAX", cell: ({ stages }) => formatDuration(stages?.total?.max) },
    { title: "SLOWEST-NODE", cell: ({ slowest }) => slowest?.node ?? "" },
    { title: "STORED", cell: ({ storedAt }) => formatClock(storedAt), isWide: true },
    { title: "SOURCE", cell: ({ source }) => source, isWide: true },
    { title: "RECEIVED", cell: ({ receivedCount }) => String(receivedCount), isWide: true },
    {
      title: "ERROR",
      cell: ({ failures: [first] }) => (first === undefined ? "" : `${first.node}: ${first.error}`),
      isWide: true,
    },
  ],
};

const maxNamed = 2;

/** Formats the objects of a change: `endpoints default/web, service default/dns deleted, 3 more`. */
export function formatObjects({ objects, objectCount, isFirstList }: Change, max: number = maxNamed): string {
  if (isFirstList) return `initial list: ${formatCount(Number(objectCount), "object")}`;
  const named = objects
    .slice(0, max)
    .map(({ kind, key, isDeleted }) => `${formatEnum(ObjectKindSchema, kind)} ${key}${isDeleted ? " deleted" : ""}`);
  const others = Number(objectCount) - named.length;
  if (others > 0) named.push(`${others} more`);
  return named.length === 0 ? "service CIDRs, or the end of an initial list" : named.join(", ");
}

/**
 * `kpng get changes`: lists recent changes. A change is one revision of the cluster state, with how many nodes applied
 * it and how long that took.
 */
export const changesCommand: InspectCommand = {
  name: "changes",
  aliases: ["change"],
  description: "recent changes, newest first, and how long the nodes took to apply them",
  options: [namespaceOption, allNamespacesOption, serviceFilterOption, limitOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND
  COMMAND -n default --service web --watch
`,
  run: runList({
    noun: "change",
    table: changeTable,
    filterOf: (_, options) => ({ ...splitService(options), pageSize: Number(options.limit) }),
    // One page, whose size is the limit.
    list: async (client, request) => ({ ...(await client.listChanges(request)), nextPageToken: "" }),
    watch: (client, { namespace, service }, call) => client.watchChanges({ namespace, service }, call),
    rowsOf: ({ changes }) => changes,
    keyOf: ({ revision }) => String(revision),
  }),
};
