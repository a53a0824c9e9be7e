import { Code, ConnectError } from "@connectrpc/connect";
import { readNodeName } from "../stream/session/requests.ts";

/**
 * Returns the node name of an inspection request. Errors: INVALID_ARGUMENT for an empty name, which means that the
 * client omitted the field, and for an invalid one.
 *
 * Separate, because `explainMethod` and the method ListNodeEndpoints both call it. Streams call `readNodeName`
 * directly: there, an empty name is allowed.
 */
export function readRequestedNode(name: string): string {
  if (name === "") throw new ConnectError("node_name must not be empty", Code.InvalidArgument);
  return readNodeName(name);
}
