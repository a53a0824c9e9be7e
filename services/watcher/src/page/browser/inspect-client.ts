import type { DecisionRow, EndpointRow, Explanation, ServiceRow } from "./inspect-rows.ts";

// Calls of the inspect API by the script of the status page, for what its event stream does not contain: `main.ts`
// lists the Services, and the sections ask for details that a user opens. Separate, so that only one file knows HTTP.

/** Rows per page: small enough that the watcher makes them in one short piece of work. */
const pageSize = 500;

/** Limit for the rows of one list, so that a page about a huge cluster stays usable. */
const maxRows = 20_000;

/**
 * Calls a method of the inspect API by Connect's GET requests, which are same-origin and need no `Origin`.
 *
 * Errors: Error with the message of the watcher.
 */
async function call<T>(method: string, request: object): Promise<T> {
  const query = new URLSearchParams({ connect: "v1", encoding: "json", message: JSON.stringify(request) });
  const response = await fetch(`kpng.inspect.v1.InspectService/${method}?${query}`, { cache: "no-store" });
  const text = await response.text();
  if (response.ok) return JSON.parse(text) as T;
  throw new Error(messageOf(text) ?? `HTTP status ${response.status}`);
}

function messageOf(text: string): string | undefined {
  try {
    return (JSON.parse(text) as { message?: string }).message;
  } catch {
    return text.trim().slice(0, 300) || undefined;
  }
}

type Page<K extends string, R> = { readonly revision?: string; readonly nextPageToken?: string } & {
  readonly [key in K]?: readonly R[];
};

async function list<K extends string, R>(
  method: string,
  key: K,
  request: object,
): Promise<{ readonly rows: readonly R[]; readonly revision: number }> {
  const rows: R[] = [];
  let revision: number | undefined;
  for (let pageToken = ""; ; ) {
    const page = await call<Page<K, R>>(method, { ...request, pageSize, pageToken });
    revision ??= Number(page.revision ?? 0);
    rows.push(...(page[key] ?? []));
    pageToken = page.nextPageToken ?? "";
    if (pageToken === "" || rows.length >= maxRows) return { rows, revision };
  }
}

/** Returns all Services, and the revision of the first page. */
export function listServices(): Promise<{ readonly rows: readonly ServiceRow[]; readonly revision: number }> {
  return list<"services", ServiceRow>("ListServices", "services", {});
}

/** Returns the endpoints of a Service. */
export async function listEndpoints(namespace: string, service: string): Promise<readonly EndpointRow[]> {
  return (await list<"endpoints", EndpointRow>("ListEndpoints", "endpoints", { namespace, service })).rows;
}

/** Returns what a node does with the endpoints of a Service. */
export async function listDecisions(
  nodeName: string,
  namespace: string,
  service: string,
): Promise<readonly DecisionRow[]> {
  const request = { nodeName, namespace, service };
  return (await list<"decisions", DecisionRow>("ListNodeEndpoints", "decisions", request)).rows;
}

/** Explains what a node does with a packet. Fields that are "" or 0 are unset. */
export function explainPacket(request: {
  readonly nodeName: string;
  readonly sourceAddress: string;
  readonly destination: string;
  readonly port: number;
  readonly protocol: string;
}): Promise<Explanation> {
  return call<Explanation>("Explain", request);
}
