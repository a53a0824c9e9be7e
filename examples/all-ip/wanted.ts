import { isIP, SocketAddress } from "node:net";

export type Family = "v4" | "v6";

/** One whole IP address and where its packets go. */
export interface ExternalAddress {
  /** As inet_ntop writes it, e.g. "198.51.100.10" or "2001:db8:100::10". */
  readonly address: string;
  /** namespace/name of the Service that has it. */
  readonly service: string;
  /** Addresses of the endpoints on this node, same family, sorted, at least one. */
  readonly endpoints: readonly string[];
}

/** What this node must do, sorted by address. */
export interface Wanted {
  readonly v4: readonly ExternalAddress[];
  readonly v6: readonly ExternalAddress[];
  /** What a person should know although it does not stop the work, a sentence each. */
  readonly notes: readonly string[];
}

export const nothingWanted: Wanted = { v4: [], v6: [], notes: [] };

/** Input that must not reach the kernel; the message says which line, which Service, which value. */
export class InputError extends Error {}

/**
 * Reads the node's state, one JSON object a line, as kpng-json and kpng-callout write it.
 *
 * An external IP without an endpoint on this node is left out: another node has to answer it. Of two Services with the
 * same external IP the first has it, on every node.
 *
 * Errors: InputError for anything that is not as it should be. Nothing of such an input is used, because a state of which
 * one part is wrong may be wrong or cut off elsewhere too.
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
        if (owner !== undefined) notes.push(`${address} stays with ${owner.service}; ${service} wants it too`);
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

/** The endpoint's addresses if it is on this node and may serve traffic from outside; all are checked either way. */
function endpointOf(value: unknown, at: string): Addresses {
  const endpoint = record(value, at);
  const addresses = addressSet(endpoint.IPs, `${at}.IPs`);
  // A sender from before scopes existed sends none: then being on the node is enough.
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

/** Addresses that are nobody's to give away; the API server refuses them as external and as endpoint addresses too. */
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

/** A namespace or Service name (RFC 1123); it becomes part of a rule's comment. */
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
