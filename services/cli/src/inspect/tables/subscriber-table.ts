import {
  ApplyStateSchema,
  SubscriberKind,
  SubscriberKindSchema,
  SubscriberSchema,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { formatAge, formatDuration, formatEnum } from "../print/format.ts";
import type { TableSpec } from "../print/output.ts";
import { shortError, stateStyles } from "./node-table.ts";

/**
 * Columns for open streams, and what each subscriber has applied. `kpng get subscribers` and `kpng describe node` print
 * them. Separate from both commands, because both need it, and from `nodeTable`, which has one row for each node of the
 * cluster.
 */
export const subscriberTable: TableSpec<typeof SubscriberSchema> = {
  schema: SubscriberSchema,
  columns: [
    { title: "ID", cell: ({ id }) => String(id) },
    { title: "NODE", cell: ({ node, kind }) => (node === "" && kind !== SubscriberKind.NODE ? "(all)" : node) },
    { title: "KIND", cell: ({ kind }) => formatEnum(SubscriberKindSchema, kind) },
    { title: "PROGRAM", cell: ({ program }) => program },
    { title: "PEER", cell: ({ peer }) => peer },
    {
      title: "STATE",
      cell: ({ state }) => formatEnum(ApplyStateSchema, state),
      style: ({ state }) => stateStyles[state],
    },
    { title: "APPLIED", cell: ({ hasAcknowledged, appliedRevision: n }) => (hasAcknowledged ? String(n) : "") },
    { title: "BEHIND", cell: ({ revisionsBehind }) => String(revisionsBehind) },
    { title: "LAG", cell: ({ unappliedSince }) => formatAge(unappliedSince) },
    { title: "AGE", cell: ({ openedAt }) => formatAge(openedAt) },
    { title: "VERSION", cell: ({ version }) => version, isWide: true },
    { title: "PROXY", cell: ({ serviceProxyName }) => serviceProxyName, isWide: true },
    { title: "SENT", cell: ({ sentRevision }) => String(sentRevision), isWide: true },
    { title: "RECEIVED", cell: ({ receivedRevision }) => String(receivedRevision), isWide: true },
    { title: "WAIT", cell: ({ timings }) => formatDuration(timings?.wait), isWide: true },
    { title: "RENDER", cell: ({ timings }) => formatDuration(timings?.render), isWide: true },
    { title: "COMMIT", cell: ({ timings }) => formatDuration(timings?.commit), isWide: true },
    { title: "ERROR", cell: ({ error }) => shortError(error) },
  ],
};
