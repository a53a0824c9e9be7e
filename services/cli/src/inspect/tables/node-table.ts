import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ApplyState, ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import type { CellStyle } from "../print/color.ts";
import { formatAge, formatEnum, formatLabels } from "../print/format.ts";
import type { TableSpec } from "../print/output.ts";

/**
 * Columns for nodes, and what each has applied. `kpng get nodes` prints them, and `kpng top` for the nodes that are
 * behind. Separate from both commands, because both need it.
 */
export const nodeTable: TableSpec<typeof NodeSchema> = {
  schema: NodeSchema,
  nameOf: ({ name }) => `node/${name}`,
  columns: [
    { title: "NAME", cell: ({ name, isKnown }) => (isKnown ? name : `${name} (unknown)`) },
    {
      title: "STATE",
      cell: ({ state }) => formatEnum(ApplyStateSchema, state),
      style: ({ state }) => stateStyles[state],
    },
    { title: "APPLIED", cell: ({ appliedRevision }) => (appliedRevision === 0n ? "" : String(appliedRevision)) },
    { title: "LAG", cell: ({ unappliedSince }) => formatAge(unappliedSince) },
    { title: "ENDPOINTS", cell: ({ endpointCount }) => String(endpointCount) },
    { title: "ZONE", cell: ({ zone }) => zone },
    { title: "PROGRAM", cell: ({ programs }) => programs.join(",") },
    {
      title: "OBSERVERS",
      cell: ({ observerCount }) => (observerCount === 0 ? "" : String(observerCount)),
    },
    { title: "STREAMS", cell: ({ subscriberCount }) => String(subscriberCount), isWide: true },
    { title: "ADDRESSES", cell: ({ addresses }) => addresses.join(","), isWide: true },
    { title: "POD-CIDRS", cell: ({ podCidrs }) => podCidrs.join(","), isWide: true },
    { title: "ELIGIBLE", cell: ({ isEligible }) => String(isEligible), isWide: true },
    { title: "LABELS", cell: ({ labels }) => formatLabels(labels), isWide: true },
    { title: "ERROR", cell: ({ error }) => shortError(error) },
  ],
};

/** Colours of the states. */
export const stateStyles: Readonly<Partial<Record<ApplyState, CellStyle>>> = {
  [ApplyState.CURRENT]: "good",
  [ApplyState.RECEIVED]: "good",
  [ApplyState.BEHIND]: "doubtful",
  [ApplyState.FAILING]: "bad",
  [ApplyState.ABSENT]: "idle",
  [ApplyState.UNKNOWN]: "bad",
};

const maxErrorLength = 60;

/** Truncates an error for a table; the other formats have the whole text. */
export function shortError(error: string): string {
  return error.length <= maxErrorLength ? error : `${error.slice(0, maxErrorLength - 1)}…`;
}
