import { Code, ConnectError } from "@connectrpc/connect";
import { readNodeName } from "../stream/session/requests.ts";

/**
 * The node that a question is about. An empty name is a field that was left out, and not a node.
 *
 * Errors: INVALID_ARGUMENT.
 */
export function readAskedNode(name: string): string {
  if (name === "") throw new ConnectError("node_name is empty: which node is meant?", Code.InvalidArgument);
  return readNodeName(name);
}
