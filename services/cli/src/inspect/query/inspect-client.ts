import { type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";

/** Asks a watcher. */
export type InspectClient = Client<typeof InspectService>;

export function inspectClient(transport: Transport): InspectClient {
  return createClient(InspectService, transport);
}

/** Largest pages, so that a big list takes few calls. */
export const pageSize = 1_000;

/** Reads all pages of a list. */
export async function readPages<R extends { readonly nextPageToken: string }, T>(
  ask: (pageToken: string) => Promise<R>,
  rowsOf: (response: R) => readonly T[],
): Promise<T[]> {
  const rows: T[] = [];
  for (let pageToken = ""; ; ) {
    const response = await ask(pageToken);
    rows.push(...rowsOf(response));
    pageToken = response.nextPageToken;
    if (pageToken === "") return rows;
  }
}

/** A warning: what is answered of such a node is what one without zone and endpoints would do. */
export function unknownNode(nodeName: string): string {
  return `the cluster does not know a node "${nodeName}"`;
}

/** Does `work`; what the watcher answers in place of an answer becomes an error of ours. Errors: REQUEST_FAILED. */
export async function asking<T>(watcher: string, signal: AbortSignal, work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (signal.aborted) return undefined;
    if (!(error instanceof ConnectError)) throw error;
    const what = whatHappened(error);
    throw new ProcessError("REQUEST_FAILED", `${watcher} ${what}`, { cause: error });
  }
}

function whatHappened({ code, rawMessage }: ConnectError): string {
  // What is no answer of a method of ours: a server of something else, or ours without the service.
  if (code === Code.Unimplemented && rawMessage.startsWith("HTTP ")) {
    return (
      "does not know such questions: it is nothing of kpng, an older version, a watcher that runs with " +
      "--inspect-api=false, or a watcher in the place of a backend's --inspect-socket (or the reverse)"
    );
  }
  const isRefusal = code === Code.InvalidArgument || code === Code.Unimplemented || code === Code.PermissionDenied;
  return isRefusal ? "refuses the question" : "gives no answer";
}
