import { Code, ConnectError } from "@connectrpc/connect";

/**
 * Permissions of a client, from its certificate, its token, or the way it is connected (docs/decisions/0039). The
 * services of the watcher check these rights before they read the state.
 */
export interface Rights {
  /** Names of the nodes whose views the client may read; "all" for every node. */
  readonly nodes: ReadonlySet<string> | "all";
  /** The state of the whole cluster, for relays. */
  readonly hasState: boolean;
  /** Every method of the inspect API. Without it, the client may inspect its own nodes. */
  readonly hasInspection: boolean;
  /** The client's identity for log messages. *Shape:* `certificate "n1"`, `system:serviceaccount:kube-system:kpng`. */
  readonly identity: string;
  /** Why the token of the call was not accepted. Refusals say it. */
  readonly tokenProblem?: TokenProblem | undefined;
}

/** Why a token gives no rights. */
export interface TokenProblem {
  /** UNAVAILABLE if the token could not be checked, and may be accepted later. */
  readonly code: Code.Unauthenticated | Code.Unavailable;
  /** *Shape:* "the token has expired". */
  readonly message: string;
}

/** Rights to read everything: of clients on a unix socket or loopback, and with `--allow-anonymous` of all clients. */
export function everyRight(identity: string): Rights {
  return { nodes: "all", hasState: true, hasInspection: true, identity };
}

/** Rights of clients over TCP that prove no identity. */
export const noRights: Rights = { nodes: new Set(), hasState: false, hasInspection: false, identity: "" };

/** Returns the rights of a call that has those of its connection and those of its token. */
export function joinRights(connection: Rights, token: Rights): Rights {
  const [a, b] = [connection.nodes, token.nodes];
  return {
    ...connection,
    nodes: a === "all" || b === "all" ? "all" : a.union(b),
    hasState: connection.hasState || token.hasState,
    hasInspection: connection.hasInspection || token.hasInspection,
    identity: [connection.identity, token.identity].filter((identity) => identity !== "").join(" and "),
  };
}

/** Allows a request for the view of a node. Errors: UNAUTHENTICATED without any identity; PERMISSION_DENIED. */
export function checkNodeRight(rights: Rights, nodeName: string): void {
  if (rights.nodes === "all" || rights.nodes.has(nodeName)) return;
  throw refusal(rights, `read the view of node "${nodeName}"`);
}

/** True if the client may read something. */
function hasAnyRight({ nodes, hasState, hasInspection }: Rights): boolean {
  return nodes === "all" || nodes.size > 0 || hasState || hasInspection;
}

/**
 * Allows a request that reveals no object of the cluster, to any client that may read something. Errors: as {@link
 * checkNodeRight}.
 */
export function checkAnyRight(rights: Rights): void {
  if (!hasAnyRight(rights)) throw refusal(rights, "ask for the position of the state");
}

/** Allows a request for the state of the whole cluster. Errors: as {@link checkNodeRight}. */
export function checkStateRight(rights: Rights): void {
  if (!rights.hasState) throw refusal(rights, "read the state of the whole cluster");
}

/**
 * Allows a call of the inspect API; `nodeName` is the only node that the answer concerns, or undefined. Errors: as
 * {@link checkNodeRight}.
 */
export function checkInspectionRight(rights: Rights, nodeName: string | undefined): void {
  if (rights.hasInspection) return;
  if (nodeName === undefined || nodeName === "") throw refusal(rights, "inspect the whole cluster");
  if (rights.nodes !== "all" && !rights.nodes.has(nodeName)) throw refusal(rights, `inspect node "${nodeName}"`);
}

function refusal({ identity, tokenProblem }: Rights, what: string): ConnectError {
  if (tokenProblem !== undefined) {
    const { code, message } = tokenProblem;
    return new ConnectError(`${message}; without a valid token, this client may not ${what}`, code);
  }
  if (identity !== "") return new ConnectError(`${identity} may not ${what}`, Code.PermissionDenied);
  return new ConnectError(
    `a client without a certificate or token may not ${what}; the watcher's --allow-anonymous would permit it`,
    Code.Unauthenticated,
  );
}
