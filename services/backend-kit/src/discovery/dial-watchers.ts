import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { connect, isIP } from "node:net";
import type { DescMessage } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type StreamResponse, type Transport } from "@connectrpc/connect";
import { addressAndPort } from "@kpng/model/address.ts";
import { getOrMake } from "@kpng/model/collections.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import {
  type ApiAddress,
  checkSecrecy,
  type DialOptions,
  dial,
  parseApiAddress,
} from "@kpng/process/connection/dial.ts";
import { endError, pushbackOf, retryLaterError, staleHeader } from "@kpng/process/connection/reconnect.ts";
import { type Log, reasonOf, withoutCredentials } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";

export interface DialWatchersOptions extends Pick<DialOptions, "tls" | "token" | "maxMessageBytes"> {
  /**
   * Addresses or names in the form that `dial` accepts, separated by commas; a name may resolve to several addresses.
   */
  readonly api: string;
  readonly log: Log;
  /** Time within which one of several watchers must send its first message, in milliseconds. Default 30 000. */
  readonly answerLimitMs?: number | undefined;
  /** Time between two searches for a watcher that is not stale, in milliseconds. Default 20 000. */
  readonly searchMs?: number | undefined;
  readonly resolve?: typeof resolveHost | undefined;
  readonly random?: (() => number) | undefined;
}

/**
 * Returns a transport to one of several watchers, which is chosen anew for each stream. The watcher of the previous
 * stream is tried after all others, unless it asked the node to move. If an address does not accept a connection, the
 * next one is tried immediately. Names are resolved for each stream; a name that cannot be resolved keeps its previous
 * addresses. If a watcher says that it is stale, its stream ends as soon as a watcher is found that is not stale, and
 * the next stream goes to that watcher.
 *
 * Errors: BAD_OPTION for an invalid address, or for a token over plain TCP. A stream fails if no name can be resolved.
 */
export function dialWatchers(options: DialWatchersOptions): Transport {
  const finder = new WatcherFinder(options);
  return {
    async unary(method, signal = neverAborted, ...call) {
      return finder.transportOf(await finder.next(signal)).unary(method, signal, ...call);
    },
    async stream(method, signal = neverAborted, ...call) {
      const address = await finder.next(signal);
      const transport = finder.transportOf(address);
      options.log.debug("opening stream to watcher", { address: address.key });
      const stream = new WatcherStream(finder, address, options, signal);
      return stream.open((limited) => transport.stream(method, limited, ...call));
    },
  };
}

const neverAborted = new AbortController().signal;

/**
 * One stream to one watcher.
 *
 * | State | Ends with |
 * |---|---|
 * | silent, from the request to the first message | UNAVAILABLE after `answerLimitMs`, if there are other watchers |
 * | working, after the first message | a request to reconnect, when this watcher is stale and another one is not |
 * | ended | |
 */
class WatcherStream {
  readonly #finder: WatcherFinder;
  readonly #address: WatcherAddress;
  readonly #options: DialWatchersOptions;
  readonly #signal: AbortSignal;
  /** Aborts the call. The abort reason becomes the error of the stream, which would otherwise be "canceled". */
  readonly #abort = new AbortController();
  readonly #ended = new AbortController();
  readonly #answerTimer: NodeJS.Timeout | undefined;
  #isWorking = false;

  constructor(finder: WatcherFinder, address: WatcherAddress, options: DialWatchersOptions, signal: AbortSignal) {
    this.#finder = finder;
    this.#address = address;
    this.#options = options;
    this.#signal = signal;
    const { answerLimitMs = 30_000 } = options;
    const silent = unavailable(`watcher ${address.key}: no answer within ${answerLimitMs} ms`);
    if (finder.hasOthers) this.#answerTimer = setTimeout(() => this.#abort.abort(silent), answerLimitMs).unref();
  }

  async open<I extends DescMessage, O extends DescMessage>(
    call: (signal: AbortSignal) => Promise<StreamResponse<I, O>>,
  ): Promise<StreamResponse<I, O>> {
    try {
      const response = await call(AbortSignal.any([this.#abort.signal, this.#signal]));
      if (this.#finder.hasOthers && response.header.has(staleHeader)) {
        // Also stop on the caller's signal: a caller that refuses a message aborts its call and reads no further, so
        // the loop over the messages never ends.
        void this.#moveWhenOtherIsFresh(AbortSignal.any([this.#ended.signal, this.#signal]));
      }
      return { ...response, message: this.#observe(response) };
    } catch (error) {
      clearTimeout(this.#answerTimer);
      throw this.#explain(error);
    }
  }

  async *#observe<I extends DescMessage, O extends DescMessage>({ message: messages, trailer }: StreamResponse<I, O>) {
    try {
      for await (const message of messages) {
        clearTimeout(this.#answerTimer);
        if (!this.#isWorking) this.#finder.worked(this.#address);
        this.#isWorking = true;
        yield message;
      }
      const end = endError(trailer);
      if (pushbackOf(end) !== undefined) throw end;
    } catch (error) {
      // Before its first message, the watcher refuses the stream because it is busy: the next one goes elsewhere.
      if (this.#isWorking && pushbackOf(error) !== undefined) this.#finder.askedToMove();
      throw this.#explain(error);
    } finally {
      clearTimeout(this.#answerTimer);
      this.#ended.abort();
    }
  }

  async #moveWhenOtherIsFresh(stop: AbortSignal): Promise<void> {
    const { searchMs: intervalMs, random, log } = this.#options;
    const current = this.#finder.transportOf(this.#address);
    const others = () => this.#finder.othersThan(this.#address);
    const key = await findFreshWatcher({ current, others, intervalMs, random }, stop);
    if (key === undefined || stop.aborted) return;
    log.info("leaving a stale watcher for one that is current", { address: key });
    this.#finder.prefer(key);
    this.#abort.abort(retryLaterError("the watcher is stale, and another one is not", 0));
  }

  #explain(error: unknown): unknown {
    return this.#abort.signal.aborted ? this.#abort.signal.reason : error;
  }
}

/**
 * Resolves the names of watchers and chooses the next address. The choice is random, so that the nodes that lost one
 * watcher spread over the others; the address of the last stream comes after all others.
 */
class WatcherFinder {
  readonly #options: DialWatchersOptions;
  readonly #apis: readonly ApiAddress[];
  readonly #transports = new Map<string, Transport>();
  /** Result of the last successful resolution of each name. */
  readonly #addressesByHost = new Map<string, readonly string[]>();
  #addresses: readonly WatcherAddress[] = [];
  /** Key of the address that was tried last; "" if the server at that address asked the node to move. */
  #last = "";
  /** Key of the address that the next stream tries first; "" for none. */
  #preferred = "";
  /** Key of the address that last sent a message. */
  #working = "";

  /** Errors: BAD_OPTION. */
  constructor(options: DialWatchersOptions) {
    const { api, tls, token } = options;
    this.#options = options;
    this.#apis = parseApis(api, tls !== undefined);
    if (token !== undefined) for (const address of this.#apis) checkSecrecy(address, api);
  }

  /** Returns the address for the next stream: the first address that accepts connections. Each one is tried once. */
  async next(signal: AbortSignal): Promise<WatcherAddress> {
    const failures = await this.#resolve();
    const addresses = this.#addresses;
    const keys = new Set(addresses.map(({ key }) => key));
    for (const key of this.#transports.keys()) if (!keys.has(key)) this.#transports.delete(key);
    if (addresses.length === 0) throw unavailable(`no watcher address: ${failures.join("; ")}`);
    if (failures.length > 0) this.#options.log.debug("name not resolved: using its last addresses", { failures });
    const reasons = [...failures];
    let lastCause: unknown;
    for (const address of this.#inOrder(addresses)) {
      this.#last = address.key;
      this.#preferred = "";
      // There is nothing to choose; the stream itself reports why it fails.
      if (addresses.length === 1) return address;
      try {
        await checkReachable(address, signal);
        return address;
      } catch (cause) {
        reasons.push(`watcher ${address.key}: ${reasonOf(cause)}`);
        lastCause = cause;
        if (signal.aborted) break;
      }
    }
    throw unavailable(reasons.join("; "), lastCause);
  }

  /**
   * Finds the addresses, without duplicates, in the order of `--api`; returns the reasons why names could not be
   * resolved. Such a name keeps its addresses: the name server may itself be a Service that needs this node's rules.
   */
  async #resolve(): Promise<readonly string[]> {
    const { resolve = resolveHost } = this.#options;
    const failures: string[] = [];
    const hosts = this.#apis.flatMap((api) => (api.kind === "tcp" && isIP(api.host) === 0 ? [api.host] : []));
    await Promise.all(
      [...new Set(hosts)].map(async (host) => {
        try {
          this.#addressesByHost.set(host, await resolve(host));
        } catch (error) {
          failures.push(reasonOf(error));
        }
      }),
    );
    const all = this.#apis.flatMap((api) => addressesFor(api, (host) => this.#addressesByHost.get(host) ?? []));
    this.#addresses = all.filter(({ key }, index) => all.findIndex((one) => one.key === key) === index);
    return failures;
  }

  #inOrder(addresses: readonly WatcherAddress[]): readonly WatcherAddress[] {
    const { random = Math.random } = this.#options;
    const rank = ({ key }: WatcherAddress): number => (key === this.#preferred ? 0 : key === this.#last ? 2 : 1);
    const ranked = addresses.map((address) => ({ address, order: rank(address) + random() }));
    return ranked.sort((a, b) => a.order - b.order).map(({ address }) => address);
  }

  get hasOthers(): boolean {
    return this.#addresses.length > 1;
  }

  transportOf(address: WatcherAddress): Transport {
    return getOrMake(this.#transports, address.key, () => dialAddress(address, this.#options));
  }

  othersThan({ key }: WatcherAddress): readonly (readonly [string, Transport])[] {
    return this.#addresses.filter((one) => one.key !== key).map((one) => [one.key, this.transportOf(one)]);
  }

  prefer(key: string): void {
    this.#preferred = key;
  }

  /**
   * Must be called if a watcher asks the node to move. The next stream may go to the same watcher again: if all of its
   * nodes avoided it, the other watchers would get too many.
   */
  askedToMove(): void {
    this.#last = "";
  }

  worked({ key }: WatcherAddress): void {
    if (key === this.#working) return;
    this.#working = key;
    this.#options.log.info("connected to watcher", { address: key });
  }
}

interface WatcherAddress {
  /** Identifier, also used in the log: `10.0.0.1:12090`, `[fd00::1]:12090`, `unix:/run/kpng.sock`. */
  readonly key: string;
  readonly address: ApiAddress;
  /** Name that the watcher's certificate must have; undefined if `--api` contains the address itself. */
  readonly serverName?: string | undefined;
}

/** Uses the hosts file, search domains and DNS. Rejects if there are no addresses. */
async function resolveHost(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}

function parseApis(text: string, hasTlsFiles: boolean): readonly ApiAddress[] {
  // A comma may be part of a password, so error messages must not show one part, but the whole value with its
  // credentials hidden.
  const shown = text.includes("@") ? withoutCredentials(text) : undefined;
  const parts = text.split(",").filter((part) => part !== "");
  // An empty value, e.g. from a variable that is not set, causes the error for an invalid address.
  return (parts.length === 0 ? [text] : parts).map((part) => parseApiAddress(part, hasTlsFiles, shown ?? part));
}

function addressesFor(api: ApiAddress, addressesOf: (host: string) => readonly string[]): readonly WatcherAddress[] {
  if (api.kind === "unix") return [{ key: `unix:${api.path}`, address: api }];
  const { host: name, port } = api;
  if (isIP(name) !== 0) return [{ key: addressAndPort(name, port), address: api }];
  return addressesOf(name).map((host) => ({
    key: addressAndPort(host, port),
    address: { ...api, host },
    serverName: name,
  }));
}

/** The certificate must have the name that `--api` gives, even if the name was resolved to an address. */
function dialAddress(
  { key, address, serverName }: WatcherAddress,
  { tls, token, maxMessageBytes }: DialWatchersOptions,
): Transport {
  if (address.kind === "unix") return dial({ api: `unix://${address.path}`, tls, token, maxMessageBytes });
  if (!address.isTls) return dial({ api: key, token, maxMessageBytes });
  const named = () => (serverName === undefined ? { ...tls?.() } : { ...tls?.(), servername: serverName });
  return dial({ api: `https://${key}`, tls: named, token, maxMessageBytes });
}

const connectLimitMs = 5_000;

/**
 * Rejects if an address does not accept a connection in time. A machine without power does not answer at all, and the
 * kernel would keep trying for two minutes.
 */
async function checkReachable({ address }: WatcherAddress, signal: AbortSignal): Promise<void> {
  const limit = AbortSignal.timeout(connectLimitMs);
  const target = address.kind === "unix" ? { path: address.path } : { host: address.host, port: address.port };
  const socket = connect({ ...target, signal: AbortSignal.any([signal, limit]) });
  try {
    await once(socket, "connect");
  } catch (error) {
    throw limit.aborted ? new Error(`no answer within ${connectLimitMs} ms`) : error;
  } finally {
    socket.destroy();
  }
}

function unavailable(message: string, cause?: unknown): ConnectError {
  return new ConnectError(message, Code.Unavailable, undefined, undefined, cause);
}

/**
 * Looks for a watcher that is not stale. Resolves with its key, or with undefined when the current watcher is no longer
 * stale or `signal` aborts.
 *
 * The first search begins after a random delay of up to a quarter of `intervalMs`, because all nodes of a watcher start
 * searching at the same time.
 */
export async function findFreshWatcher(
  { current, others, intervalMs = 20_000, random = Math.random }: SearchOptions,
  signal: AbortSignal,
): Promise<string | undefined> {
  await waitMs((intervalMs / 4) * random(), signal);
  while (!signal.aborted) {
    if (await isFresh(current, signal)) return undefined;
    for (const [key, transport] of others()) {
      if (await isFresh(transport, signal)) return key;
    }
    await waitMs(intervalMs * (0.75 + 0.5 * random()), signal);
  }
  return undefined;
}

const checkLimitMs = 3_000;

async function isFresh(transport: Transport, signal: AbortSignal): Promise<boolean> {
  try {
    const answer = await createClient(PositionService, transport).check({}, { signal, timeoutMs: checkLimitMs });
    return !answer.isStale;
  } catch {
    // The watcher is unreachable, is not ready, or does not know the call: no reason to leave a working stream.
    return false;
  }
}

interface SearchOptions {
  readonly current: Transport;
  readonly others: () => Iterable<readonly [string, Transport]>;
  /** Time between two searches, in milliseconds, varied by a quarter. Default 20 000. */
  readonly intervalMs?: number | undefined;
  readonly random?: (() => number) | undefined;
}
