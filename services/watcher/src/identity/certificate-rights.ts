import type { Rights } from "./rights.ts";

/**
 * Returns the rights that a verified client certificate states in its URI names.
 *
 * | URI name | right |
 * |---|---|
 * | `kpng://node/n1` | the view of node `n1` |
 * | `kpng://node/*` | the views of all nodes |
 * | `kpng://state` | the state of the whole cluster, and the views of all nodes |
 * | `kpng://inspection` | the whole inspect API |
 *
 * Other names are ignored. *Shape:* `subjectAltName` as Node.js prints it, `URI:kpng://node/n1, DNS:example`; a name
 * with a comma or a quote is printed in quotes, and is never one of ours.
 *
 * `rightsOfConnection` calls it for clients over TLS. Separate from it, because this function only parses text.
 */
export function rightsOfCertificate(subjectAltName: string | undefined, commonName: string): Rights {
  const names = [...(subjectAltName ?? "").matchAll(namePattern)].map(([name]) => name);
  const rights = names.flatMap((name) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : []));
  const nodes = rights.flatMap((right) => (right.startsWith("node/") ? [right.slice("node/".length)] : []));
  const hasState = rights.includes("state");
  return {
    nodes: hasState || nodes.includes("*") ? "all" : new Set(nodes.filter((name) => name !== "")),
    hasState,
    hasInspection: rights.includes("inspection"),
    identity: `certificate "${commonName}"`,
  };
}

const prefix = "URI:kpng://";

/** A name with its type. Node.js prints a value with a comma or a quote as a JSON string. */
const namePattern = /[^:, ][^:,]*:(?:"(?:[^"\\]|\\.)*"|[^,"]*)/g;
