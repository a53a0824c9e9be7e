import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { type ApiAddress, parseApiAddress } from "@kpng/process/connection/dial.ts";
import { reasonOf, withoutCredentials } from "@kpng/process/log.ts";

/** One address of a watcher, after names were resolved. */
export interface WatcherAddress {
  /** Identifier, also in the log: `10.0.0.1:12090`, `[fd00::1]:12090`, `unix:/run/kpng.sock`. */
  readonly key: string;
  readonly address: ApiAddress;
  /** Name that its certificate must have; undefined if `--api` has the address itself. */
  readonly serverName?: string | undefined;
}

/** Function that returns the addresses of a name. Rejects if there are none. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Resolves a name as this machine does: hosts file, search domains, DNS. */
export const resolveHost: Resolve = async (host) => (await lookup(host, { all: true })).map(({ address }) => address);

/** Splits the value of `--api` and checks each part. Errors: BAD_OPTION. */
export function parseApis(text: string, hasTlsFiles: boolean): readonly ApiAddress[] {
  // A comma may be part of a password, so messages must show the whole text without credentials.
  const shown = text.includes("@") ? withoutCredentials(text) : undefined;
  const parts = text.split(",").filter((part) => part !== "");
  // An empty text, e.g. of a variable that is not set, gets the error for an invalid address.
  return (parts.length === 0 ? [text] : parts).map((part) => parseApiAddress(part, hasTlsFiles, shown ?? part));
}

/** Result of {@link resolveApis}. */
interface ResolvedApis {
  /** In the order of `--api`. */
  readonly addresses: readonly WatcherAddress[];
  /** Addresses of each name that could be resolved. */
  readonly addressesByHost: ReadonlyMap<string, readonly string[]>;
  /** Reasons why names could not be resolved. */
  readonly failures: readonly string[];
}

/**
 * Returns all addresses of the watchers in `--api`, for `dialWatchers`. A name that cannot be resolved now has the
 * addresses that it had `before`: the name server may itself be a Service that does not work without this node's rules.
 */
export async function resolveApis(
  apis: readonly ApiAddress[],
  before: ReadonlyMap<string, readonly string[]>,
  resolve: Resolve,
): Promise<ResolvedApis> {
  const addressesByHost = new Map<string, readonly string[]>();
  const failures: string[] = [];
  const hosts = new Set(
    apis.flatMap((address) => (address.kind === "tcp" && isIP(address.host) === 0 ? [address.host] : [])),
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
  for (const api of apis) {
    for (const address of addressesFor(api, (host) => addressesByHost.get(host) ?? before.get(host) ?? [])) {
      if (!addresses.has(address.key)) addresses.set(address.key, address);
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

/**
 * Order in which a node tries the addresses of its watchers: rounds in random order, each with every address once, and
 * never the same address twice in a row. Random, so that the nodes that lost one watcher spread over the others.
 */
export class WatcherRotation {
  readonly #random: () => number;
  /** Addresses of this round that are still to be tried. */
  #round: string[] = [];
  #last = "";

  /** `random` returns a number from 0 up to but not including 1. */
  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /**
   * Starts a new round that may begin with any address, including the last one. For a watcher that asks its nodes to
   * move: if all of them avoided it, too many would go to the others.
   */
  startOver(): void {
    this.#round = [];
    this.#last = "";
  }

  /** Makes `key` the next address to try, if it is in the list then. */
  prefer(key: string): void {
    this.#round = [key];
    if (this.#last === key) this.#last = "";
  }

  /** Returns the next address to try; undefined if there is none. */
  next(addresses: readonly WatcherAddress[]): WatcherAddress | undefined {
    const byKey = new Map(addresses.map((address) => [address.key, address]));
    this.#round = this.#round.filter((key) => byKey.has(key) && (key !== this.#last || byKey.size === 1));
    if (this.#round.length === 0) this.#round = this.#shuffle([...byKey.keys()]);
    const key = this.#round.shift();
    if (key === undefined) return undefined;
    this.#last = key;
    return byKey.get(key);
  }

  #shuffle(keys: string[]): string[] {
    for (let index = keys.length - 1; index > 0; index--) {
      const other = Math.floor(this.#random() * (index + 1));
      [keys[index], keys[other]] = [keys[other] ?? "", keys[index] ?? ""];
    }
    const [first, ...rest] = keys;
    return first === this.#last && rest.length > 0 ? [...rest, first] : keys;
  }
}
