import { lookup } from "node:dns/promises";
import { mkdir, rename } from "node:fs/promises";
import { isIP } from "node:net";
import { join } from "node:path";
import { type ApiAddress, parseApiAddress } from "@kpng/process/connection/dial.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { withoutCredentials } from "@kpng/process/redact.ts";
import { createOwnFile, openOwnFile } from "@kpng/process/regular-file.ts";

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
 * `eu-1a=10.0.0.1:12090`. `zone` is the zone of this node, "" if it is not known. Errors: BAD_OPTION.
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

/**
 * Order in which a node tries the addresses of its watchers: rounds in random order, each with every address once, and
 * never the same address twice in a row. Random, so that the nodes that lost one watcher spread over the others. In
 * each round, addresses in the node's zone come first. It opens no connection: names are resolved by `resolveApis`,
 * connections opened by `dialAddress`.
 */
export class WatcherRotation {
  readonly #random: () => number;
  /** Addresses of this round that are still to be tried. */
  #round: string[] = [];
  #last = "";

  /**
   * `first` is tried first if it is in the list: the address that worked before a restart. `random` returns a number
   * from 0 up to but not including 1.
   */
  constructor(first: string | undefined, random: () => number = Math.random) {
    this.#random = random;
    if (first !== undefined) this.#round = [first];
  }

  /**
   * Starts a new round that may begin with any address, including the last one. For a watcher that asks its nodes to
   * move: if all of them avoided it, too many would go to the others.
   */
  startOver(): void {
    this.#round = [];
    this.#last = "";
  }

  /** Starts a new round, in which addresses of the node's zone come first again; the last address does not. */
  newRound(): void {
    this.#round = [];
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
    if (this.#round.length === 0) this.#round = this.#shuffle([...byKey.values()]);
    const key = this.#round.shift();
    if (key === undefined) return undefined;
    this.#last = key;
    return byKey.get(key);
  }

  #shuffle(addresses: readonly WatcherAddress[]): string[] {
    const keys = addresses.map(({ key }) => key);
    for (let index = keys.length - 1; index > 0; index--) {
      const other = Math.floor(this.#random() * (index + 1));
      [keys[index], keys[other]] = [keys[other] ?? "", keys[index] ?? ""];
    }
    const near = new Set(addresses.filter(({ isNear }) => isNear).map(({ key }) => key));
    keys.sort((a, b) => Number(near.has(b)) - Number(near.has(a)));
    const [first, ...rest] = keys;
    return first === this.#last && rest.length > 0 ? [...rest, first] : keys;
  }
}

/** Maximum size of the file, in bytes: many times the addresses of a cluster's watchers. */
const maxFileBytes = 1024 * 1024;

/**
 * Addresses of watchers that a node saves for its next start, in `watchers.json` of the state folder. `dialWatchers`
 * reads the file at its first stream and writes it when an address works.
 */
export interface KnownWatchers {
  /** The address that worked last; undefined if none has. */
  readonly lastGood: string | undefined;
  /** Addresses of each name at its last successful resolution. */
  readonly addressesByHost: ReadonlyMap<string, readonly string[]>;
}

/** State of a node that has not connected to a watcher yet. */
export const nothingKnown: KnownWatchers = { lastGood: undefined, addressesByHost: new Map() };

/**
 * Reads the saved addresses for `dialWatchers`. A missing or invalid file counts as empty, because the file only makes
 * a start quicker.
 */
export async function readKnownWatchers(folder: string): Promise<KnownWatchers> {
  try {
    await using file = await openOwnFile(pathIn(folder), maxFileBytes);
    return decode(JSON.parse(await file.readFile("utf8")));
  } catch {
    return nothingKnown;
  }
}

/** Replaces the file atomically. Errors: those of the file system. */
export async function writeKnownWatchers(folder: string, known: KnownWatchers): Promise<void> {
  const { lastGood, addressesByHost } = known;
  const json = JSON.stringify({ version: 1, lastGood, addresses: Object.fromEntries(addressesByHost) });
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const draft = `${pathIn(folder)}.tmp`;
  {
    await using file = await createOwnFile(draft);
    await file.writeFile(`${json}\n`);
  }
  await rename(draft, pathIn(folder));
}

function pathIn(folder: string): string {
  return join(folder, "watchers.json");
}

function decode(value: unknown): KnownWatchers {
  if (typeof value !== "object" || value === null || !("version" in value) || value.version !== 1) return nothingKnown;
  const lastGood = "lastGood" in value && typeof value.lastGood === "string" ? value.lastGood : undefined;
  const addresses = "addresses" in value && typeof value.addresses === "object" ? (value.addresses ?? {}) : {};
  const addressesByHost = new Map<string, readonly string[]>();
  for (const [host, list] of Object.entries(addresses)) {
    if (Array.isArray(list) && list.every((item) => typeof item === "string")) addressesByHost.set(host, list);
  }
  return { lastGood, addressesByHost };
}
