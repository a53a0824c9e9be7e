import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { type ApiAddress, parseApiAddress } from "@kpng/process/connection/dial.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { withoutCredentials } from "@kpng/process/redact.ts";

/** One place where a watcher may be. */
export interface WatcherPlace {
  /** Tells it from all others, and is what is logged: `10.0.0.1:12090`, `[fd00::1]:12090`, `unix:/run/kpng.sock`. */
  readonly key: string;
  readonly address: ApiAddress;
  /** The name that its certificate must have; undefined for one that is given as an address. */
  readonly serverName?: string | undefined;
}

/** Returns the addresses of a name. Rejects if there are none. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** As the machine resolves names: hosts file, search domains, DNS. */
export const resolveHost: Resolve = async (host) => (await lookup(host, { all: true })).map(({ address }) => address);

/** Splits the value of `--api` and checks each part. Errors: BAD_OPTION. */
export function parseApis(text: string, hasTlsFiles: boolean): readonly ApiAddress[] {
  // A comma may be a part of a password: then a message shows what can be shown of the whole.
  const shown = text.includes("@") ? withoutCredentials(text) : undefined;
  const parts = text.split(",").filter((part) => part !== "");
  // As where a variable was not set.
  return (parts.length === 0 ? [text] : parts).map((part) => parseApiAddress(part, hasTlsFiles, shown));
}

export interface Resolved {
  readonly places: readonly WatcherPlace[];
  /** What each name was found to be; a name that could not be resolved is not among them. */
  readonly addressesByHost: ReadonlyMap<string, readonly string[]>;
  /** Why names could not be resolved. */
  readonly failures: readonly string[];
}

/**
 * Returns all places that addresses stand for. A name that cannot be resolved now is what it was before: the name
 * server may itself be a Service that does not work without us.
 */
export async function resolveApis(
  apis: readonly ApiAddress[],
  before: ReadonlyMap<string, readonly string[]>,
  resolve: Resolve,
): Promise<Resolved> {
  const addressesByHost = new Map<string, readonly string[]>();
  const failures: string[] = [];
  const hosts = new Set(apis.flatMap((api) => (api.kind === "tcp" && isIP(api.host) === 0 ? [api.host] : [])));
  await Promise.all(
    [...hosts].map(async (host) => {
      try {
        addressesByHost.set(host, await resolve(host));
      } catch (error) {
        failures.push(reasonOf(error));
      }
    }),
  );
  const places = new Map<string, WatcherPlace>();
  for (const api of apis) {
    for (const place of placesOf(api, (host) => addressesByHost.get(host) ?? before.get(host) ?? [])) {
      if (!places.has(place.key)) places.set(place.key, place);
    }
  }
  return { places: [...places.values()], addressesByHost, failures };
}

function placesOf(api: ApiAddress, addressesOf: (host: string) => readonly string[]): readonly WatcherPlace[] {
  if (api.kind === "unix") return [{ key: `unix:${api.path}`, address: api }];
  if (isIP(api.host) !== 0) return [{ key: formatPlace(api.host, api.port), address: api }];
  return addressesOf(api.host).map((host) => ({
    key: formatPlace(host, api.port),
    address: { ...api, host },
    serverName: api.host,
  }));
}

function formatPlace(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
