import { assertNever, isRecord } from "@kpng/model/narrowing.ts";
import { reasonOf } from "@kpng/process/log.ts";

/** Status and body of a response from the API server. The body is read while it arrives. */
export interface KubeResponse {
  readonly status: number;
  readonly body: AsyncIterable<Buffer>;
}

/** Connection to an API server. Its implementation, `connectKube`, takes 0.5 s to load. */
export interface KubeConnection {
  /** URL for logs, e.g. "https://10.96.0.1:443". */
  readonly server: string;
  /**
   * Sends a GET to a path with or without a query, and resolves with the response once its headers have arrived,
   * whatever the status. Aborting `signal` also ends the body. Node.js errors are passed on, even while `body` is being
   * read.
   */
  get(path: string, signal: AbortSignal): Promise<KubeResponse>;
  /** Sends a POST with a JSON body; otherwise like {@link get}. Used for reviews, which create no object. */
  post(path: string, body: unknown, signal: AbortSignal): Promise<KubeResponse>;
  /** Closes the idle connections. */
  close(): void;
}

/**
 * Sends a GET, and yields an empty chunk for the headers, then the chunks of the body. If the request fails, the last
 * value is the failure ("lost" after an abort). Never throws. A consumer that stops early ends the request.
 */
export async function* readBody(
  connection: KubeConnection,
  { request, path, silenceMs }: GetRequest,
  signal: AbortSignal,
): AsyncGenerator<Buffer | RequestFailure> {
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), silenceMs);
  try {
    const { status, body } = await connection.get(path, AbortSignal.any([signal, silence.signal]));
    timer.refresh();
    if (status !== 200) {
      yield failureOfText(request, status, await readText(body));
      return;
    }
    yield Buffer.alloc(0);
    for await (const chunk of body) {
      timer.refresh();
      yield chunk;
    }
  } catch (error) {
    const isSilent = silence.signal.aborted && !signal.aborted;
    yield {
      ...request,
      ...(isSilent ? { kind: "silent", afterMs: silenceMs } : { kind: "lost", message: reasonOf(error) }),
    };
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** Sends a GET and returns the parsed body, which is a JSON object. */
export async function readJson(
  connection: KubeConnection,
  get: GetRequest,
  signal: AbortSignal,
): Promise<{ readonly kind: "object"; readonly object: Readonly<Record<string, unknown>> } | RequestFailure> {
  const chunks: Buffer[] = [];
  for await (const chunk of readBody(connection, get, signal)) {
    if (!Buffer.isBuffer(chunk)) return chunk;
    chunks.push(chunk);
  }
  const object = parseJson(Buffer.concat(chunks).toString("utf8"));
  return isRecord(object)
    ? { kind: "object", object }
    : { ...get.request, kind: "garbled", message: "the body is not a JSON object" };
}

interface GetRequest {
  /** Names the request in failures. */
  readonly request: ApiRequest;
  readonly path: string;
  /** Maximum time without a byte, in milliseconds. The headers count as the first bytes. */
  readonly silenceMs: number;
}

const maxTextBytes = 1 << 20;

/** Reads at most about 1 MiB of a body. */
export async function readText(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let byteCount = 0;
  for await (const chunk of body) {
    byteCount += chunk.length;
    if (byteCount > maxTextBytes) break;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Verb and resource of a request to the API server, named as in RBAC rules. */
export interface ApiRequest {
  readonly verb: "get" | "list" | "watch";
  /** *Shape:* `services`, `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
}

/** Why a list or a watch failed or ended early. The kinds are label values of the source's metrics. */
export type RequestFailure =
  /** The server refused the request, by an HTTP status or by an ERROR event in the stream. */
  | (ApiRequest & { readonly kind: "refused"; readonly status: number; readonly message: string })
  /** Status 410: the server no longer has the resourceVersion, or the continue token of a paged list. */
  | (ApiRequest & { readonly kind: "expired"; readonly message: string })
  /** The connection could not be opened, or broke. */
  | (ApiRequest & { readonly kind: "lost"; readonly message: string })
  /** The connection is open, but no data arrived for `afterMs` milliseconds. */
  | (ApiRequest & { readonly kind: "silent"; readonly afterMs: number })
  /** The response is not in the format of the Kubernetes API. */
  | (ApiRequest & { readonly kind: "garbled"; readonly message: string });

/** Returns a message for logs and health, with verb and resource as in RBAC rules. */
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

function failureOfText(request: ApiRequest, status: number, text: string): RequestFailure {
  // A proxy in between may answer with plain text instead of a Status object.
  const body = parseJson(text) ?? { message: text.trim().slice(0, 200) || "no reason given" };
  return failureOfStatus(request, body, status);
}

/** Returns the failure that the Status object of a response or an ERROR event describes. */
export function failureOfStatus(request: ApiRequest, body: unknown, httpStatus: number): RequestFailure {
  const code = isRecord(body) && typeof body.code === "number" ? body.code : httpStatus;
  const message = isRecord(body) && typeof body.message === "string" ? body.message : "no reason given";
  if (code === 410) return { ...request, kind: "expired", message };
  return { ...request, kind: "refused", status: code, message };
}

/** A collection of the Kubernetes API that the source lists and watches, for example all Services. */
export interface Resource {
  /** Path of the collection across all namespaces, e.g. `/api/v1/services`. */
  readonly path: string;
  /** *Shape:* `resource.group` as in RBAC rules, e.g. `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
}
