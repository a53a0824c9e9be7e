import { Code, ConnectError } from "@connectrpc/connect";
import { readNodeName } from "../stream/session/requests.ts";

/**
 * Returns the node name of an inspection request. An empty name means that the client omitted the field. Methods that
 * concern one node call this function.
 *
 * Errors: INVALID_ARGUMENT for an empty or invalid name.
 *
 * `explainMethod` and the method ListNodeEndpoints call it. Streams call `readNodeName` directly: there, an empty name
 * is allowed.
 */
export function readRequestedNode(name: string): string {
  if (name === "") throw new ConnectError("node_name must not be empty", Code.InvalidArgument);
  return readNodeName(name);
}
