import { isIP, SocketAddress } from "node:net";

export type Family = "v4" | "v6";

/** An external IP and the endpoints that its packets go to. */
export interface ExternalAddress {
  /** In the format of inet_ntop, e.g. "198.51.100.10" or "2001:db8:100::10". */
  readonly address: string;
  /** The Service that owns the address, namespace/name. */
  readonly service: string;
  /** Addresses of the endpoints on this node, same family, sorted, at least one. */
  readonly endpoints: readonly string[];
}

/** The external IPs that this node must serve, sorted by address. */
export interface Wanted {
  readonly v4: readonly ExternalAddress[];
  readonly v6: readonly ExternalAddress[];
  /** Warnings, one sentence each. */
  readonly notes: readonly string[];
}

export const noAddresses: Wanted = { v4: [], v6: [], notes: [] };

/** Invalid input; the message names the line, the Service and the value. */
export class InputError extends Error {}

/**
 * Reads the node's state, one JSON object per line, as kpng-json and kpng-callout write it.
 *
 * An external IP without an endpoint on this node is omitted: another node must answer it. If two Services have the
 * same external IP, the first one gets it, on every node.
 *
 * Errors: InputError for any invalid part. Then nothing of the input is used, because it may be truncated or wrong in
 * other parts, too.
 */
export function readWanted(ndjson: string): Wanted {
  const found = { v4: new Map<string, ExternalAddress>(), v6: new Map<string, ExternalAddress>() };
  const notes: string[] = [];
  for (const [index, line] of ndjson.split("\n").entries()) {
    if (line.trim() === "") continue;
    const where = `line ${index + 1}`;
    const { service, external, endpoints } = readLine(line, where);
    for (const family of ["v4", "v6"] as const) {
      for (const address of external[family]) {
        const owner = found[family].get(address);
        if (owner !== undefined) notes.push(`${address} belongs to ${owner.service}; ignoring it in ${service}`);
        else found[family].set(address, { address, service, endpoints: endpoints[family] });
      }
    }
  }
  const sorted = (family: Family) =>
    [...found[family].values()]
      .filter(({ endpoints }) => endpoints.length > 0)
      .sort((one, other) => (one.address < other.address ? -1 : 1));
  return { v4: sorted("v4"), v6: sorted("v6"), notes };
}

type Addresses = Readonly<Record<Family, readonly string[]>>;

function readLine(
  line: string,
  where: string,
): { readonly service: string; readonly external: Addresses; readonly endpoints: Addresses } {
  const item = record(parse(line, where), where);
  const service = record(item.Service, `${where}: Service`);
  const name = `${label(service.Namespace, `${where}: Namespace`)}/${label(service.Name, `${where}: Name`)}`;
  const at = `${where} (${name})`;
  const external = addressSet(record(service.IPs, `${at}: IPs`).ExternalIPs, `${at}: ExternalIPs`);
  const endpoints = list(item.Endpoints, `${at}: Endpoints`).map((value) => endpointOf(value, `${at}: Endpoints`));
  return {
    service: name,
    external,
    endpoints: {
      v4: unique(endpoints.flatMap((endpoint) => endpoint.v4.slice(0, 1))),
      v6: unique(endpoints.flatMap((endpoint) => endpoint.v6.slice(0, 1))),
    },
  };
}

/** Validates the endpoint's addresses, and returns them if it is on this node and may serve external traffic. */
function endpointOf(value: unknown, at: string): Addresses {
  const endpoint = record(value, at);
  const addresses = addressSet(endpoint.IPs, `${at}.IPs`);
  // A watcher from before scopes existed sends none. Then it is enough that the endpoint is on the node.
  const scopes = endpoint.Scopes === undefined ? { External: true } : record(endpoint.Scopes, `${at}.Scopes`);
  return endpoint.Local === true && scopes.External === true ? addresses : { v4: [], v6: [] };
}

function addressSet(value: unknown, at: string): Addresses {
  const set = value === undefined || value === null ? {} : record(value, at);
  return {
    v4: unique(list(set.V4, `${at}.V4`).map((text) => addressOf(text, "v4", `${at}.V4`))),
    v6: unique(list(set.V6, `${at}.V6`).map((text) => addressOf(text, "v6", `${at}.V6`))),
  };
}

/** Addresses that no Service may own; the API server rejects them as external IPs and as endpoint addresses, too. */
const special: Readonly<Record<Family, RegExp>> = {
  v4: /^(0\.|127\.|169\.254\.|22[4-9]\.|2[345]\d\.)/,
  v6: /^(::1?$|::ffff:|fe[89ab]|ff)/,
};

function addressOf(value: unknown, family: Family, at: string): string {
  const version = family === "v4" ? 4 : 6;
  const text = typeof value === "string" && !value.includes("%") && isIP(value) === version ? value : undefined;
  if (text === undefined) throw new InputError(`${at}: ${show(value)} is not an IPv${version} address`);
  const { address } = new SocketAddress({ address: text, family: `ipv${version}` });
  if (special[family].test(address)) {
    throw new InputError(`${at}: ${address} is an unspecified, loopback, link-local, multicast or reserved address`);
  }
  return address;
}

/** Returns a namespace or Service name (RFC 1123), which becomes part of a rule's comment. */
function label(value: unknown, at: string): string {
  if (typeof value === "string" && /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(value)) return value;
  throw new InputError(`${at}: ${show(value)} is not a name of lower-case letters, digits and '-'`);
}

function parse(line: string, where: string): unknown {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new InputError(`${where}: not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function record(value: unknown, at: string): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return { ...value };
  throw new InputError(`${at}: expected an object, got ${show(value)}`);
}

function list(value: unknown, at: string): readonly unknown[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) return value;
  throw new InputError(`${at}: expected a list, got ${show(value)}`);
}

function unique(texts: readonly string[]): readonly string[] {
  return [...new Set(texts)].sort();
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? "nothing").slice(0, 80);
}
