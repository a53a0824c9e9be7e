import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { formatAge, formatEnum } from "../print/format.ts";
import type { RowKind } from "../print/output.ts";

/** Longest error that a table shows without `-o wide`. */
const maxErrorLength = 60;

export function shortError(error: string): string {
  return error.length <= maxErrorLength ? error : `${error.slice(0, maxErrorLength - 1)}…`;
}

export const nodeTable: RowKind<typeof NodeSchema> = {
  schema: NodeSchema,
  columns: [
    { title: "NAME", cell: ({ name, isKnown }) => (isKnown ? name : `${name} (unknown)`) },
    { title: "STATE", cell: ({ state }) => formatEnum(ApplyStateSchema, state) },
    { title: "APPLIED", cell: ({ appliedRevision }) => (appliedRevision === 0n ? "" : String(appliedRevision)) },
    { title: "WAITING", cell: ({ unappliedSince }) => formatAge(unappliedSince) },
    { title: "ENDPOINTS", cell: ({ endpointCount }) => String(endpointCount) },
    { title: "ZONE", cell: ({ zone }) => zone },
    { title: "PROGRAM", cell: ({ programs }) => programs.join(",") },
    { title: "STREAMS", cell: ({ subscriberCount }) => String(subscriberCount), isWide: true },
    { title: "ADDRESSES", cell: ({ addresses }) => addresses.join(","), isWide: true },
    { title: "POD-CIDRS", cell: ({ podCidrs }) => podCidrs.join(","), isWide: true },
    { title: "ELIGIBLE", cell: ({ isEligible }) => String(isEligible), isWide: true },
    { title: "ERROR", cell: ({ error }) => shortError(error) },
  ],
};
