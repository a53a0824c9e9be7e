import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { type ApiAddress, parseApiAddress } from "@kpng/process/connection/dial.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { withoutCredentials } from "@kpng/process/redact.ts";

/** One address of a watcher, after names were resolved. */
export interface WatcherAddress {
  /** Identifier, also in the log: `10.0.0.1:12090`, `[fd00::1]:12090`, `unix:/run/kpng.sock`. */
  readonly key: string;
  readonly address: ApiAddress;
  /** Name that its certificate must have; undefined if `--api` has the address itself. */
  readonly serverName?: string | undefined;
  /** True if `--api` says that it is in the zone of this node. Default false. */
  readonly isNear?: boolean | undefined;
}

/** One part of the value of `--api`. */
export interface Api {
  readonly address: ApiAddress;
  /** True if the part names the zone of this node. */
  readonly isNear: boolean;
}

/** Function that returns the addresses of a name. Rejects if there are none. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Resolves a name as this machine does: hosts file, search domains, DNS. */
export const resolveHost: Resolve = async (host) => (await lookup(host, { all: true })).map(({ address }) => address);

/**
 * Splits the value of `--api` and checks each part: an address as `parseApiAddress` accepts it, or one with its zone,
 * `eu-1a=10.0.0.1:12090`. `zone` is the zone of this node, "" if it is not known. `dialWatchers` calls it once;
 * `resolveApis` resolves the names for each stream. Errors: BAD_OPTION.
 */
export function parseApis(text: string, hasTlsFiles: boolean, zone = ""): readonly Api[] {
  // A comma may be part of a password, so messages must show the whole text without credentials.
  const shown = text.includes("@") ? withoutCredentials(text) : undefined;
  const parts = text.split(",").filter((part) => part !== "");
  // An empty text, e.g. of a variable that is not set, gets the error for an invalid address.
  return (parts.length === 0 ? [text] : parts).map((part) => {
    // A zone is a label value, which no address with a "=" begins with.
    const [, zoneOfPart, address = part] = /^([A-Za-z0-9][A-Za-z0-9._-]*)=(.*)$/.exec(part) ?? [];
    const isNear = zoneOfPart !== undefined && zoneOfPart === zone;
    return { address: parseApiAddress(address, hasTlsFiles, shown ?? part), isNear };
  });
}

/** Result of {@link resolveApis}. */
export interface ResolvedApis {
  /** In the order of `--api`, but with those in the zone of this node first. */
  readonly addresses: readonly WatcherAddress[];
  /** Addresses of each name that could be resolved. */
  readonly addressesByHost: ReadonlyMap<string, readonly string[]>;
  /** Reasons why names could not be resolved. */
  readonly failures: readonly string[];
}

/**
 * Returns all addresses of the watchers in `--api`, for `dialWatchers`. A name that cannot be resolved now has the
 * addresses that it had `before`: the name server may itself be a Service that does not work without this node's rules.
 * Separate from `WatcherRotation` and `dialAddress`, which choose one of the addresses and connect to it.
 */
export async function resolveApis(
  apis: readonly Api[],
  before: ReadonlyMap<string, readonly string[]>,
  resolve: Resolve,
): Promise<ResolvedApis> {
  const addressesByHost = new Map<string, readonly string[]>();
  const failures: string[] = [];
  const hosts = new Set(
    apis.flatMap(({ address }) => (address.kind === "tcp" && isIP(address.host) === 0 ? [address.host] : [])),
  );
  await Promise.all(
    [...hosts].map(async (host) => {
      try {
        addressesByHost.set(host, await resolve(host));
      } catch (error) {
        failures.push(reasonOf(error));
      }
    }),
  );
  const addresses = new Map<string, WatcherAddress>();
  for (const { address: api, isNear } of apis.toSorted((a, b) => Number(b.isNear) - Number(a.isNear))) {
    for (const address of addressesFor(api, (host) => addressesByHost.get(host) ?? before.get(host) ?? [])) {
      if (!addresses.has(address.key)) addresses.set(address.key, { ...address, isNear });
    }
  }
  return { addresses: [...addresses.values()], addressesByHost, failures };
}

function addressesFor(api: ApiAddress, addressesOf: (host: string) => readonly string[]): readonly WatcherAddress[] {
  if (api.kind === "unix") return [{ key: `unix:${api.path}`, address: api }];
  if (isIP(api.host) !== 0) return [{ key: formatAddress(api.host, api.port), address: api }];
  return addressesOf(api.host).map((host) => ({
    key: formatAddress(host, api.port),
    address: { ...api, host },
    serverName: api.host,
  }));
}

function formatAddress(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
