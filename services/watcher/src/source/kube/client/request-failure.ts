import { assertNever } from "@kpng/model/assert-never.ts";
import { isRecord } from "@kpng/model/is-record.ts";

/** What is asked of the API server, in the words of its authorizer. */
export interface Asked {
  readonly verb: "list" | "watch";
  /** *Shape:* `services`, `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
}

/** Why a list or a watch came to nothing, or ended. */
export type Failure =
  /** The server's own answer, as HTTP status or inside the stream. */
  | (Asked & { readonly kind: "refused"; readonly status: number; readonly message: string })
  /** 410: the resourceVersion, or the place in a paged list, is forgotten. */
  | (Asked & { readonly kind: "expired"; readonly message: string })
  /** The connection could not be made, or broke. */
  | (Asked & { readonly kind: "lost"; readonly message: string })
  /** The connection stands and nothing came over it. */
  | (Asked & { readonly kind: "silent"; readonly afterMs: number })
  /** What came is no answer of an API server. */
  | (Asked & { readonly kind: "garbled"; readonly message: string });

/** Returns the failure for people; names verb and resource, as a missing permission must be. */
export function describeFailure(failure: Failure): string {
  const what = `${failure.verb} ${failure.resource}`;
  switch (failure.kind) {
    case "refused":
      return `${failure.status}: ${failure.status === 403 ? "may not" : "cannot"} ${what}: ${failure.message}`;
    case "expired":
      return `410: cannot ${what}: ${failure.message}`;
    case "lost":
      return `cannot ${what}: ${failure.message}`;
    case "silent":
      return `cannot ${what}: nothing came for ${failure.afterMs} ms`;
    case "garbled":
      return `cannot ${what}: the answer makes no sense: ${failure.message}`;
    default:
      return assertNever(failure);
  }
}

/** Returns what a Status object says; `body` is a whole answer or the object of an ERROR event. */
export function failureOfStatus(asked: Asked, body: unknown, httpStatus: number): Failure {
  const code = isRecord(body) && typeof body.code === "number" ? body.code : httpStatus;
  const message = isRecord(body) && typeof body.message === "string" ? body.message : "no reason given";
  if (code === 410) return { ...asked, kind: "expired", message };
  return { ...asked, kind: "refused", status: code, message };
}
