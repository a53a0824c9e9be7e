import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CallOptions, type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import type { EndpointDecision } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { InspectService, type ListNodeEndpointsRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { oneLine } from "../print/terminal-text.ts";
import { requestHint } from "./request-hint.ts";

/**
 * Client of a watcher's inspect API. Nearly all commands of `inspect/` send their queries with it. Separate from them:
 * this file has what they need for a request, and they decide what to request.
 */
export type InspectClient = Client<typeof InspectService>;

/** Returns a client that sends its calls over this transport. */
export function inspectClient(transport: Transport): InspectClient {
  return createClient(InspectService, transport);
}

/** Rows per page: the maximum, so that a long list takes few calls. */
export const pageSize = 1_000;

/** Reads all pages of a list and returns their rows. */
export async function readPages<P extends { readonly nextPageToken: string }, T>(
  readPage: (pageToken: string) => Promise<P>,
  rowsOf: (page: P) => readonly T[],
): Promise<T[]> {
  const rows: T[] = [];
  for (let pageToken = ""; ; ) {
    const page = await readPage(pageToken);
    rows.push(...rowsOf(page));
    pageToken = page.nextPageToken;
    if (pageToken === "") return rows;
  }
}

/** Returns the endpoints of a node's view, and warns on standard error if the cluster does not know the node. */
export async function readNodeEndpoints(
  client: InspectClient,
  filter: MessageInitShape<typeof ListNodeEndpointsRequestSchema> & { readonly nodeName: string },
  call: CallOptions = {},
): Promise<readonly EndpointDecision[]> {
  let isNodeKnown = true;
  const decisions = await readPages(
    (pageToken) => client.listNodeEndpoints({ ...filter, pageSize, pageToken }, call),
    (page) => {
      isNodeKnown = page.isNodeKnown;
      return page.decisions;
    },
  );
  if (!isNodeKnown) warnUnknownNode(filter.nodeName);
  return decisions;
}

/**
 * Warns on standard error that the cluster does not have the node. The watcher then answers as for a node without zone
 * and endpoints.
 */
export function warnUnknownNode(nodeName: string): void {
  process.stderr.write(`warning: node "${nodeName}" not found in the cluster\n`);
}

/**
 * Runs `work`; an error of an RPC becomes an error that names the server, with a hint if the cause is known. Ignores
 * errors after `signal` aborted. `makeInspect` and `makeInspectSource` run all queries inside it.
 *
 * Errors: REQUEST_FAILED if a request fails.
 */
export async function withRequestErrors(
  server: string,
  signal: AbortSignal,
  work: () => Promise<unknown>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ConnectError)) throw error;
    const message = `${server}: ${describeFailure(error)}: ${oneLine(error.message)}`;
    const hint = requestHint(message);
    throw new ProcessError("REQUEST_FAILED", hint === undefined ? message : `${message}\nHint: ${hint}`);
  }
}

function describeFailure({ code, rawMessage }: ConnectError): string {
  // An HTTP error instead of a gRPC status: the server has no such service.
  if (code === Code.Unimplemented && rawMessage.startsWith("HTTP ")) {
    return (
      "no inspect API there: not a kpng server, an older version, a watcher with --inspect-api=false, or a watcher " +
      "in place of a backend's --inspect-socket (or the reverse)"
    );
  }
  const isRejected = code === Code.InvalidArgument || code === Code.Unimplemented || code === Code.PermissionDenied;
  return isRejected ? "request rejected" : "request failed";
}
