import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { pushbackOf } from "@kpng/process/connection/retry-pushback.ts";
import type { Log } from "@kpng/process/log.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { TlsFiles } from "@kpng/process/tls-files.ts";
import { BackendError } from "../types/backend-error.ts";
import { PlaceChooser } from "./choose-place.ts";
import { checkReachable, dialPlace } from "./dial-place.ts";
import { type KnownWatchers, nothingKnown, readKnownWatchers, writeKnownWatchers } from "./known-watchers.ts";
import { parseApis, type Resolve, resolveApis, resolveHost, type WatcherPlace } from "./resolve-apis.ts";

export interface DialWatchersOptions {
  /** One or several addresses or names as `dial` takes them, separated by commas; a name may have several addresses. */
  readonly api: string;
  readonly tls?: TlsFiles | undefined;
  readonly maxMessageBytes?: number | undefined;
  readonly log: Log;
  /** Where the watchers are remembered over restarts; undefined for nowhere. */
  readonly folder?: string | undefined;
  /** How long one of several watchers has to begin to answer, in milliseconds. Default 30 000. */
  readonly answerLimitMs?: number | undefined;
  /** Default {@link resolveHost}. */
  readonly resolve?: Resolve | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/** How long one of several watchers has to take a connection, in milliseconds. */
const connectLimitMs = 5_000;

/** How long one of several watchers has to begin to answer, in milliseconds. */
const answerLimitMs = 30_000;

/**
 * Returns a transport to any of several watchers: each stream goes to another one than the stream before it, or to any
 * of them where that one asked to move. One that takes no connection is left for the next one at once. Names are
 * resolved anew for each stream, and where a stream worked last is tried first after a restart.
 *
 * Errors: BAD_OPTION for an address that is none. A stream fails with NO_WATCHER_ADDRESS if no name can be resolved.
 */
export function dialWatchers(options: DialWatchersOptions): Transport {
  const { api, tls, maxMessageBytes, log } = options;
  const finder = new WatcherFinder(options, parseApis(api, tls !== undefined));
  const transports = new Map<string, Transport>();
  const find = async (signal: AbortSignal | undefined) => {
    const { place, keys } = await finder.next(signal ?? new AbortController().signal);
    for (const key of transports.keys()) if (!keys.has(key)) transports.delete(key);
    const transport = transports.get(place.key) ?? dialPlace(place, tls, maxMessageBytes);
    transports.set(place.key, transport);
    return { place, transport, isOnlyOne: keys.size === 1 };
  };
  return {
    async unary(method, signal, ...rest) {
      return (await find(signal)).transport.unary(method, signal, ...rest);
    },
    async stream(method, signal, ...rest) {
      const { place, transport, isOnlyOne } = await find(signal);
      log.debug("asking watcher", { address: place.key });
      const limit = new AnswerLimit(isOnlyOne ? undefined : (options.answerLimitMs ?? answerLimitMs), place.key);
      try {
        const response = await transport.stream(method, limit.with(signal), ...rest);
        return { ...response, message: observe(response.message, limit, finder, place) };
      } catch (error) {
        throw limit.explain(error);
      }
    },
  };
}

async function* observe<O extends DescMessage>(
  messages: AsyncIterable<MessageShape<O>>,
  limit: AnswerLimit,
  finder: WatcherFinder,
  place: WatcherPlace,
): AsyncGenerator<MessageShape<O>, void, void> {
  let isFirst = true;
  try {
    for await (const message of messages) {
      limit.keep();
      if (isFirst) await finder.worked(place);
      isFirst = false;
      yield message;
    }
  } catch (error) {
    if (!isFirst && pushbackOf(error) !== undefined) finder.askedToMove();
    throw limit.explain(error);
  } finally {
    limit.keep();
  }
}

/** Ends a stream that does not begin: its watcher hangs, or has nothing to say yet, and another one may have. */
class AnswerLimit {
  readonly #over = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #error: ConnectError;

  constructor(limitMs: number | undefined, key: string) {
    this.#error = asConnectError(new Error(`watcher ${key}: no answer within ${limitMs} ms`));
    if (limitMs !== undefined) this.#timer = setTimeout(() => this.#over.abort(), limitMs).unref();
  }

  with(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#over.signal : AbortSignal.any([signal, this.#over.signal]);
  }

  /** It has begun. */
  keep(): void {
    clearTimeout(this.#timer);
  }

  /** Instead of "canceled", which does not say by whom. */
  explain(error: unknown): unknown {
    this.keep();
    return this.#over.signal.aborted ? this.#error : error;
  }
}

/** Knows where watchers are, and which one is next. */
class WatcherFinder {
  readonly #options: DialWatchersOptions;
  readonly #apis: ReturnType<typeof parseApis>;
  #known: KnownWatchers | undefined;
  #chooser: PlaceChooser | undefined;
  #working = "";

  constructor(options: DialWatchersOptions, apis: ReturnType<typeof parseApis>) {
    this.#options = options;
    this.#apis = apis;
  }

  async next(signal: AbortSignal): Promise<{ readonly place: WatcherPlace; readonly keys: ReadonlySet<string> }> {
    const { folder, resolve = resolveHost, random, log } = this.#options;
    const known = this.#known ?? (folder === undefined ? nothingKnown : await readKnownWatchers(folder));
    this.#chooser ??= new PlaceChooser(known.lastGood, random);
    const { places, addressesByHost, failures } = await resolveApis(this.#apis, known.addressesByHost, resolve);
    this.#known = { ...known, addressesByHost: new Map([...known.addressesByHost, ...addressesByHost]) };
    if (failures.length > 0 && places.length > 0) log.debug("name not resolved, using what is known", { failures });
    return { place: await this.#reachable(places, failures, signal), keys: new Set(places.map(({ key }) => key)) };
  }

  /** The next place that takes connections; each is tried once. */
  async #reachable(places: readonly WatcherPlace[], failures: readonly string[], signal: AbortSignal) {
    const reasons: string[] = [...failures];
    for (let tries = 0; tries < Math.max(1, places.length); tries++) {
      const place = this.#chooser?.next(places);
      if (place === undefined) {
        throw asConnectError(new BackendError("NO_WATCHER_ADDRESS", `no address of a watcher: ${reasons.join("; ")}`));
      }
      if (places.length === 1) return place;
      try {
        await checkReachable(place, connectLimitMs, signal);
        return place;
      } catch (cause) {
        reasons.push(`watcher ${place.key}: ${reasonOf(cause)}`);
        if (signal.aborted) break;
      }
    }
    throw asConnectError(new Error(reasons.join("; ")));
  }

  /** The watcher wants its nodes spread anew. */
  askedToMove(): void {
    this.#chooser?.beginAnew();
  }

  async worked({ key }: WatcherPlace): Promise<void> {
    const { folder, log } = this.#options;
    if (key === this.#working) return;
    this.#working = key;
    const known = { ...(this.#known ?? nothingKnown), lastGood: key };
    this.#known = known;
    log.info("watcher answers", { address: key });
    if (folder === undefined) return;
    // To remember is a convenience: a disk that is full must not end the stream.
    await writeKnownWatchers(folder, known).catch((error: unknown) =>
      log.debug("watchers not remembered", { reason: reasonOf(error) }),
    );
  }
}

function asConnectError(cause: Error): ConnectError {
  return new ConnectError(cause.message, Code.Unavailable, undefined, undefined, cause);
}
