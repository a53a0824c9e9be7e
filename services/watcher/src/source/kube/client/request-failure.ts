import { assertNever } from "@kpng/model/assert-never.ts";
import { isRecord } from "@kpng/model/is-record.ts";

/**
 * Verb and resource of a request to the API server, named as in RBAC rules. This file classifies failed requests of
 * `kpng kube`, so that the reflector can decide whether to retry, relist or page. Separate, because requests
 * (`request/`) return failures, and reflectors, logs and metrics read them.
 */
export interface ApiRequest {
  readonly verb: "get" | "list" | "watch";
  /** *Shape:* `services`, `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
}

/** Why a list or a watch failed or ended early. The kinds are label values of the source's metrics. */
export type RequestFailure =
  /** The server refused it, by HTTP status or by an ERROR event in the stream. */
  | (ApiRequest & { readonly kind: "refused"; readonly status: number; readonly message: string })
  /** Status 410: the server no longer has the resourceVersion, or the continue token of a paged list. */
  | (ApiRequest & { readonly kind: "expired"; readonly message: string })
  /** The connection could not be opened, or broke. */
  | (ApiRequest & { readonly kind: "lost"; readonly message: string })
  /** The connection is open, but no data arrived for `afterMs` milliseconds. */
  | (ApiRequest & { readonly kind: "silent"; readonly afterMs: number })
  /** The response is not in the format of the Kubernetes API. */
  | (ApiRequest & { readonly kind: "garbled"; readonly message: string });

/**
 * Returns the text of a failure for logs and health. It names verb and resource: an admin grants permissions by them.
 * The observer of each reflector and `followServer` call it.
 */
export function describeFailure(failure: RequestFailure): string {
  const what = `${failure.verb} ${failure.resource}`;
  switch (failure.kind) {
    case "refused":
      return `${failure.status === 403 ? "not allowed to" : "cannot"} ${what} (${failure.status}): ${failure.message}`;
    case "expired":
      return `cannot ${what} (410): ${failure.message}`;
    case "lost":
      return `cannot ${what}: ${failure.message}`;
    case "silent":
      return `cannot ${what}: no data for ${failure.afterMs} ms`;
    case "garbled":
      return `cannot ${what}: invalid response: ${failure.message}`;
    default:
      return assertNever(failure);
  }
}

/**
 * Returns the failure that a Status object describes: `body` is a whole response (`openResponse` calls it), or the
 * object of an ERROR event (`watchOnce`).
 */
export function failureOfStatus(request: ApiRequest, body: unknown, httpStatus: number): RequestFailure {
  const code = isRecord(body) && typeof body.code === "number" ? body.code : httpStatus;
  const message = isRecord(body) && typeof body.message === "string" ? body.message : "no reason given";
  if (code === 410) return { ...request, kind: "expired", message };
  return { ...request, kind: "refused", status: code, message };
}
