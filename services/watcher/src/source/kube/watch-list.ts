import type { Failure } from "./failure.ts";

/**
 * Parameters that make a watch begin with all objects as ADDED events, closed by a bookmark with the annotation
 * `k8s.io/initial-events-end`: a list that neither side holds as a whole.
 *
 * Source: KEP-3157; on by default since Kubernetes 1.34, needs etcd 3.6 (or 3.4.31 and 3.5.13 as patched there).
 */
export const watchListQuery: Readonly<Record<string, string>> = {
  sendInitialEvents: "true",
  resourceVersionMatch: "NotOlderThan",
};

/**
 * True if the server says that it has no watch lists, rather than that it has trouble: an older one refuses the
 * parameters (400, 422), one on an old etcd accepts them and sends an ERROR event with code 500.
 *
 * 403 counts too: the paged list then says which permission is missing.
 */
export function isWatchListRefusal(failure: Failure): boolean {
  return failure.kind === "refused" && [400, 403, 405, 422, 500].includes(failure.status);
}
