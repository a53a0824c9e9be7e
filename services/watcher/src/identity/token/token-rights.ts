import type { Rights } from "../rights.ts";

/** Facts of a verified token: the pod's ServiceAccount, and where the pod runs. */
export interface TokenClaims {
  /** *Shape:* `kube-system/kpng-node`. */
  readonly account: string;
  /** Name of the pod's node; undefined for a token that is not bound to a pod on a node. */
  readonly nodeName: string | undefined;
  /** Unix time in milliseconds. */
  readonly expiresAtMs: number;
}

/** ServiceAccounts with a right, by right. *Shape:* `namespace/name`. */
export interface TokenAccounts {
  /** Accounts of backends: the view of the node that the token names. */
  readonly node: ReadonlySet<string>;
  /** Accounts of relays: the state of the whole cluster. */
  readonly state: ReadonlySet<string>;
  /** Accounts of people and tools: the whole inspect API. */
  readonly inspection: ReadonlySet<string>;
}

/**
 * Returns the rights of a verified token. An account may be in several lists.
 *
 * The right to a node comes from the node that the token names, never from the request: the API server wrote that name
 * into the token, because the pod runs there.
 *
 * `TokenChecker` calls it with the claims that `verifyToken` returned. Separate from both, because it is pure.
 */
export function rightsOfToken({ account, nodeName }: TokenClaims, accounts: TokenAccounts): Rights {
  const hasState = accounts.state.has(account);
  const ownNode = nodeName !== undefined && accounts.node.has(account) ? [nodeName] : [];
  return {
    nodes: hasState ? "all" : new Set(ownNode),
    hasState,
    hasInspection: accounts.inspection.has(account),
    identity: `ServiceAccount ${account}${nodeName === undefined ? "" : ` on node "${nodeName}"`}`,
  };
}
