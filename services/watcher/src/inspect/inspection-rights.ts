import { isMessage, type Message } from "@bufbuild/protobuf";
import type { Interceptor } from "@connectrpc/connect";
import {
  ExplainRequestSchema,
  ListNodeEndpointsRequestSchema,
  ListNodesRequestSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { checkInspectionRight } from "../identity/rights.ts";
import { leaveKey, rightsKey } from "../stream/serve/call.ts";

/**
 * Checks the rights of a client before each method of the inspect API: a client with the right to one node may call the
 * methods whose answer concerns only that node, and every other method needs the right of inspection. `inspection`
 * installs it as an interceptor, so that no method can forget the check.
 */
export const inspectionRights: Interceptor = (next) => async (request) => {
  // The token or the CA of the client may have been withdrawn while it sent the request.
  request.contextValues.get(leaveKey).throwIfAborted();
  checkInspectionRight(request.contextValues.get(rightsKey), request.stream ? undefined : nodeOf(request.message));
  return await next(request);
};

/** Returns the only node that the answer concerns; undefined or "" if it concerns more. */
function nodeOf(message: Message): string | undefined {
  if (isMessage(message, ExplainRequestSchema) || isMessage(message, ListNodeEndpointsRequestSchema)) {
    return message.nodeName;
  }
  return isMessage(message, ListNodesRequestSchema) ? message.name : undefined;
}
