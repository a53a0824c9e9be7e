import { once } from "node:events";
import { connect } from "node:net";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { getOrMake } from "@kpng/model/collections.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { type ApiAddress, checkSecrecy, type DialOptions, dial } from "@kpng/process/connection/dial.ts";
import { pushbackOf, retryLaterError, staleHeader } from "@kpng/process/connection/reconnect.ts";
import type { ReadTls, ReadToken, TlsFiles } from "@kpng/process/credential-files.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import {
  parseApis,
  type Resolve,
  resolveApis,
  resolveHost,
  type WatcherAddress,
  WatcherRotation,
} from "./watcher-addresses.ts";

/** Options of {@link dialWatchers}. */
export interface DialWatchersOptions {
  /**
   * Addresses or names in the form that `dial` accepts, separated by commas; a name may have several addresses.
   */
  readonly api: string;
  readonly tls?: ReadTls | undefined;
  /** See DialOptions. */
  readonly token?: ReadToken | undefined;
  readonly maxMessageBytes?: number | undefined;
  readonly log: Log;
  /** Time that one of several watchers has to send its first message, in milliseconds. Default 30 000. */
  readonly answerLimitMs?: number | undefined;
  /** Time between two searches for a watcher that is not stale, in milliseconds. Default 20 000. */
  readonly searchMs?: number | undefined;
  /** Default {@link resolveHost}. */
  readonly resolve?: Resolve | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/** Time that one of several watchers has to accept a connection, in milliseconds. */
const connectLimitMs = 5_000;

/** Time that one of several watchers has to send its first message, in milliseconds. */
const answerLimitMs = 30_000;

/**
 * Returns a transport to one of several watchers, chosen for each stream: a different one than for the previous stream,
 * or any of them if the previous one asked the node to move. If an address does not accept a connection, the next one
 * is tried at once. Names are resolved for each stream, and keep their addresses while they cannot be resolved. If a
 * watcher says that it is stale, its stream ends as soon as another watcher is not stale, and the next stream goes
 * there. Unary calls go to the watcher of the last stream.
 *
 * Errors: BAD_OPTION for an invalid address, or for a token over plain TCP. A stream fails if
 * no name can be resolved.
 */
export function dialWatchers(options: DialWatchersOptions): Transport {
  const { log } = options;
  const finder = new WatcherFinder(options, parseOptions(options));
  const transports = new Map<string, Transport>();
  const transportOf = (address: WatcherAddress): Transport =>
    getOrMake(transports, address.key, () => dialAddress(address, options));
  const find = async (signal: AbortSignal | undefined) => {
    const { address, keys } = await finder.next(signal ?? new AbortController().signal);
    for (const key of transports.keys()) if (!keys.has(key)) transports.delete(key);
    return { address, transport: transportOf(address), isOnlyOne: keys.size === 1 };
  };
  const leaveIfStale = async (current: Transport, end: AnswerLimit["end"], signal: AbortSignal): Promise<void> => {
    const { searchMs: intervalMs, random } = options;
    const others = (): Iterable<readonly [string, Transport]> =>
      finder.addresses
        .map((one) => [one.key, transportOf(one)] as const)
        .filter(([, transport]) => transport !== current);
    const key = await findFreshWatcher({ current, others, intervalMs, random }, signal);
    if (key === undefined || signal.aborted) return;
    log.info("leaving a stale watcher for one that is current", { address: key });
    finder.prefer(key);
    end(retryLaterError("the watcher is stale, and another one is not", 0));
  };
  let current: Transport | undefined;
  return {
    async unary(method, signal, ...rest) {
      return (current ?? (await find(signal)).transport).unary(method, signal, ...rest);
    },
    async stream(method, signal, ...rest) {
      const { address, transport, isOnlyOne } = await find(signal);
      current = transport;
      log.debug("opening stream to watcher", { address: address.key });
      const limit = new AnswerLimit(isOnlyOne ? undefined : (options.answerLimitMs ?? answerLimitMs), address.key);
      try {
        const response = await transport.stream(method, limit.with(signal), ...rest);
        if (!isOnlyOne && response.header.has(staleHeader)) {
          // A caller that refuses a message ends its call and reads no further, so the messages do not end.
          void leaveIfStale(transport, limit.end, AbortSignal.any([limit.signal, ...(signal ? [signal] : [])]));
        }
        return { ...response, message: observe(response.message, limit, finder, address) };
      } catch (error) {
        throw limit.explain(error);
      }
    },
  };
}

/** Checks the addresses and their TLS files and token. Errors: BAD_OPTION. */
function parseOptions({ api, tls, token }: DialWatchersOptions): readonly ApiAddress[] {
  const apis = parseApis(api, tls !== undefined);
  if (token !== undefined) for (const address of apis) checkSecrecy(address, api);
  return apis;
}

/**
 * Yields the messages of a stream; the first one lifts the time limit, and makes the address the one that worked last.
 */
async function* observe<O extends DescMessage>(
  messages: AsyncIterable<MessageShape<O>>,
  limit: AnswerLimit,
  finder: WatcherFinder,
  address: WatcherAddress,
): AsyncGenerator<MessageShape<O>, void, void> {
  let isFirst = true;
  try {
    for await (const message of messages) {
      limit.lift();
      if (isFirst) finder.worked(address);
      isFirst = false;
      yield message;
    }
  } catch (error) {
    if (!isFirst && pushbackOf(error) !== undefined) finder.askedToMove();
    throw limit.explain(error);
  } finally {
    limit.ended();
  }
}

/** Resolves the names of watchers and chooses the next address. */
class WatcherFinder {
  readonly #options: DialWatchersOptions;
  readonly #apis: readonly ApiAddress[];
  readonly #rotation: WatcherRotation;
  #addressesByHost: ReadonlyMap<string, readonly string[]> = new Map();
  #addresses: readonly WatcherAddress[] = [];
  #working = "";

  constructor(options: DialWatchersOptions, apis: readonly ApiAddress[]) {
    this.#options = options;
    this.#apis = apis;
    this.#rotation = new WatcherRotation(options.random);
  }

  /** Returns the address for the next stream, and the keys of all addresses. */
  async next(signal: AbortSignal): Promise<{ readonly address: WatcherAddress; readonly keys: ReadonlySet<string> }> {
    const { resolve = resolveHost, log } = this.#options;
    const { addresses, addressesByHost, failures } = await resolveApis(this.#apis, this.#addressesByHost, resolve);
    this.#addresses = addresses;
    this.#addressesByHost = new Map([...this.#addressesByHost, ...addressesByHost]);
    if (failures.length > 0 && addresses.length > 0)
      log.debug("name not resolved: using its last addresses", { failures });
    return {
      address: await this.#reachable(addresses, failures, signal),
      keys: new Set(addresses.map(({ key }) => key)),
    };
  }

  /** Returns the next address that accepts connections; each is tried once. */
  async #reachable(addresses: readonly WatcherAddress[], failures: readonly string[], signal: AbortSignal) {
    const reasons: string[] = [...failures];
    for (let tries = 0; tries < Math.max(1, addresses.length); tries++) {
      const address = this.#rotation.next(addresses);
      if (address === undefined) {
        throw asConnectError(new Error(`no watcher address: ${reasons.join("; ")}`));
      }
      if (addresses.length === 1) return address;
      try {
        await checkReachable(address, connectLimitMs, signal);
        return address;
      } catch (cause) {
        reasons.push(`watcher ${address.key}: ${reasonOf(cause)}`);
        if (signal.aborted) break;
      }
    }
    throw asConnectError(new Error(reasons.join("; ")));
  }

  /** Addresses of all watchers, as resolved for the last stream. */
  get addresses(): readonly WatcherAddress[] {
    return this.#addresses;
  }

  /** Makes the next stream go to this address. */
  prefer(key: string): void {
    this.#rotation.prefer(key);
  }

  /** Must be called if a watcher asks the node to move. */
  askedToMove(): void {
    this.#rotation.startOver();
  }

  /** Must be called at the first message of a stream. */
  worked({ key }: WatcherAddress): void {
    if (key === this.#working) return;
    this.#working = key;
    this.#options.log.info("connected to watcher", { address: key });
  }
}

/**
 * Returns a transport to one address of a watcher, for `dialWatchers`. The certificate must have the name that `--api`
 * gives, even if the name was resolved to an address.
 */
function dialAddress(
  { key, address, serverName }: WatcherAddress,
  { tls, token, maxMessageBytes }: Omit<DialOptions, "api">,
): Transport {
  if (address.kind === "unix") return dial({ api: `unix://${address.path}`, tls, token, maxMessageBytes });
  if (!address.isTls) return dial({ api: key, token, maxMessageBytes });
  const named = (): TlsFiles & { readonly servername?: string } =>
    serverName === undefined ? { ...tls?.() } : { ...tls?.(), servername: serverName };
  return dial({ api: `https://${key}`, tls: named, token, maxMessageBytes });
}

/**
 * Rejects if an address does not accept a connection within `limitMs`. A machine without power does not answer at all,
 * and the kernel alone would try for two minutes.
 */
async function checkReachable({ address }: WatcherAddress, limitMs: number, signal: AbortSignal): Promise<void> {
  const limit = AbortSignal.timeout(limitMs);
  const target = address.kind === "unix" ? { path: address.path } : { host: address.host, port: address.port };
  const socket = connect({ ...target, signal: AbortSignal.any([signal, limit]) });
  try {
    await once(socket, "connect");
  } catch (error) {
    throw limit.aborted ? new Error(`no answer within ${limitMs} ms`) : error;
  } finally {
    socket.destroy();
  }
}

/**
 * Ends a stream whose first message does not arrive in time: its watcher hangs or has no view yet, and another watcher
 * may have one. Also ends a stream when the node leaves its watcher.
 */
class AnswerLimit {
  readonly #over = new AbortController();
  readonly #ended = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;
  #error: ConnectError;

  /** `key`: address of the watcher, for the error. */
  constructor(limitMs: number | undefined, key: string) {
    this.#error = asConnectError(new Error(`watcher ${key}: no answer within ${limitMs} ms`));
    if (limitMs !== undefined) this.#timer = setTimeout(() => this.#over.abort(), limitMs).unref();
  }

  /** Returns a signal that aborts when `signal` does, or when the limit ends the stream. */
  with(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#over.signal : AbortSignal.any([signal, this.#over.signal]);
  }

  /** Aborts when the stream has ended. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Ends the stream with an error. */
  readonly end = (error: ConnectError): void => {
    this.#error = error;
    this.#over.abort();
  };

  /** Must be called when the stream has ended. */
  ended(): void {
    this.lift();
    this.#ended.abort();
  }

  /** Lifts the limit, because the stream has begun or ended. */
  lift(): void {
    clearTimeout(this.#timer);
  }

  /** Returns the error that names the limit instead of "canceled", if the limit ended the stream. */
  explain(error: unknown): unknown {
    this.lift();
    return this.#over.signal.aborted ? this.#error : error;
  }
}

/** Returns an error UNAVAILABLE with this cause. */
function asConnectError(cause: Error): ConnectError {
  return new ConnectError(cause.message, Code.Unavailable, undefined, undefined, cause);
}

/**
 * Looks for a watcher whose state is current while a node has a stream from one whose state may be out of date.
 * Resolves with its key when there is one; with undefined when the current watcher is no longer stale, or when `signal`
 * aborts.
 *
 * The first search begins after up to a quarter of `intervalMs`, because all nodes of a watcher search at once.
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

/** Time that a watcher has to say whether it is stale, in milliseconds. */
const checkLimitMs = 3_000;

async function isFresh(transport: Transport, signal: AbortSignal): Promise<boolean> {
  try {
    const answer = await createClient(PositionService, transport).check({}, { signal, timeoutMs: checkLimitMs });
    return !answer.isStale;
  } catch {
    // Unreachable, not ready, or a watcher that does not know the call: no reason to leave a working stream.
    return false;
  }
}

/** Parameters of {@link findFreshWatcher}. */
interface SearchOptions {
  /** The watcher of the stream. */
  readonly current: Transport;
  /** Returns the other watchers, by key. */
  readonly others: () => Iterable<readonly [string, Transport]>;
  /** Time between two searches, in milliseconds, varied by a quarter. Default 20 000. */
  readonly intervalMs?: number | undefined;
  /** Returns a number from 0 up to but not including 1. */
  readonly random?: (() => number) | undefined;
}
