import { Backoff, type BackoffOptions, type Clock, realClock } from "@kpng/process/clock.ts";
import type { Kind } from "../source.ts";
import type { KubeConnection, RequestFailure, Resource } from "./connection.ts";
import type { KindReport, RelistReason } from "./kind-report.ts";
import type { ObjectTracker } from "./objects.ts";
import { currentResourceVersion, type ListLimits, listObjects, type WatchEvent, watchOnce } from "./requests.ts";

/**
 * Keeps the objects of one kind in sync with the API server, like client-go's reflector.
 *
 * | State | Does | Next |
 * |---|---|---|
 * | list | lists until a list is complete and applied | watch |
 * | watch | watches from the version at which the list or the previous watch ended | check after a lost connection, a refusal (401, 403, 429, 503) or an end within a second; list on `requestList` and after any other failure; else watch |
 * | check | compares the server's resourceVersion with ours | list if the server's is older; else watch |
 *
 * While mass deletions wait for confirmation (see `Source`), the watch goes on, and a timer requests the second list.
 *
 * The reflector never gives up, and it detects watches that die silently.
 */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #backoff: Backoff;
  readonly #clock: Clock;
  /** True if a list was requested. Only a list that begins after the request satisfies it. */
  #mustList = false;
  /** True if the connection failed, so that another server with an older state may have replaced this one. */
  #mustCheck = false;
  /** Set while deletions wait. `mayConfirm` is true once they have waited so long that the next list decides. */
  #held: { mayConfirm: boolean } | undefined;
  #stopWatch: AbortController | undefined;

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff);
    this.#clock = options.clock ?? realClock;
  }

  /** True once a list has been completed. */
  isListed = false;
  /**
   * False while the objects may come from a state that the server no longer has: from {@link requestList}, or an older
   * version of the server, until a list is complete, and while deletions wait for confirmation. Lists for other reasons
   * only catch up with newer changes.
   */
  isCurrent = true;
  /** Version up to which changes have been applied; undefined while a list is needed. */
  resourceVersion: string | undefined;
  /** The reason why the last request failed; undefined once a list or watch has succeeded again. Never "expired". */
  failure: RequestFailure | undefined;

  /** Ends the current watch and lists again. */
  requestList(reason: RelistReason): void {
    this.#mustList = true;
    this.isCurrent = false;
    this.#options.report.relisting(reason);
    this.#stopWatch?.abort();
  }

  /** Runs until the signal aborts. Rejects only with errors from the sink. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const { resourceVersion: from } = this;
      if (from === undefined || this.#mustList) await this.#list(signal);
      else if (this.#mustCheck) await this.#check(from, signal);
      else await this.#watch(from, signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { connection, tracker, resource, report } = this.#options;
    const startedMs = this.#clock.nowMs();
    const isConfirming = this.#held?.mayConfirm === true;
    const isRequested = this.#mustList;
    this.#mustList = false;
    const list = tracker.beginList();
    let objectCount = 0;
    const add = (object: unknown): void => {
      list.add(object);
      objectCount += 1;
    };
    const end = await listObjects(connection, resource, this.#options, add, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") {
      this.#mustList ||= isRequested;
      return this.#failed(end, signal);
    }
    const heldDeletions = list.complete(isConfirming, end.resourceVersion);
    this.#mustCheck = false;
    this.resourceVersion = end.resourceVersion;
    this.isListed = true;
    this.isCurrent = heldDeletions === undefined && !this.#mustList;
    this.failure = undefined;
    report.listed(objectCount, this.#clock.nowMs() - startedMs);
    if (heldDeletions === undefined) {
      this.#held = undefined;
      return;
    }
    const { confirmMs = 31_000 } = this.#options;
    // Other lists before the confirming one decide nothing, and do not prolong the wait.
    if (this.#held === undefined) {
      const held = { mayConfirm: false };
      this.#held = held;
      void this.#clock.wait(confirmMs, signal).then(() => {
        if (signal.aborted || this.#held !== held) return;
        held.mayConfirm = true;
        this.requestList("braked");
      });
    }
    report.deletionsHeld(heldDeletions, confirmMs);
  }

  async #check(current: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, listSilenceMs } = this.#options;
    const end = await currentResourceVersion(connection, resource, listSilenceMs, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") return this.#failed(end, signal);
    this.#mustCheck = false;
    if (isOlder(end.resourceVersion, current)) this.#relist("went-back");
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, report, watchSeconds = 30, overdueMs = 10_000, random = Math.random } = this.#options;
    const timeoutSeconds = Math.ceil(watchSeconds * (1 + random()));
    const silenceMs = timeoutSeconds * 1_000 + overdueMs;
    const startedMs = this.#clock.nowMs();
    const stop = new AbortController();
    this.#stopWatch = stop;
    const opened = (): void => {
      this.failure = undefined;
      report.progressed();
    };
    const receive = (events: readonly WatchEvent[], receivedAtMs: number): void => {
      if (!this.#receive(events, receivedAtMs)) stop.abort();
    };
    const end = await watchOnce(
      connection,
      { ...resource, resourceVersion, timeoutSeconds, silenceMs },
      { opened, receive },
      AbortSignal.any([signal, stop.signal]),
    );
    if (signal.aborted) return;
    const wasHealthy = this.#clock.nowMs() - startedMs >= minHealthyMs;
    if (wasHealthy) this.#backoff.reset();
    if (end.kind === "closed") {
      report.watchClosed();
      if (wasHealthy || stop.signal.aborted) return;
      this.#mustCheck = true;
      return this.#clock.wait(this.#backoff.nextMs(), signal);
    }
    const reason = reasonToList(end);
    if (reason === undefined) this.#mustCheck = true;
    else this.#relist(reason);
    await this.#failed(end, signal);
  }

  /** Returns false if the server's state is older than ours. A list is then needed. */
  #receive(events: readonly WatchEvent[], receivedAtMs: number): boolean {
    const { tracker, report } = this.#options;
    const changes: WatchEvent[] = [];
    let version = this.resourceVersion ?? "";
    let isInOrder = true;
    for (const event of events) {
      isInOrder = !isOlder(event.resourceVersion, version);
      if (!isInOrder) break;
      version = event.resourceVersion;
      if (event.kind !== "bookmark") changes.push(event);
    }
    this.resourceVersion = version;
    this.#backoff.reset();
    report.progressed();
    tracker.apply(changes, receivedAtMs, version);
    if (!isInOrder) this.#relist("went-back");
    return isInOrder;
  }

  #relist(reason: RelistReason): void {
    this.resourceVersion = undefined;
    if (reason === "went-back") this.isCurrent = false;
    this.#options.report.relisting(reason);
  }

  async #failed(failure: RequestFailure, signal: AbortSignal): Promise<void> {
    const retryMs = this.#backoff.nextMs();
    this.#options.report.failed(failure, retryMs);
    if (failure.kind !== "expired") this.failure = failure;
    await this.#clock.wait(retryMs, signal);
  }
}

/** Minimum duration of a watch, in milliseconds, for it to be retried without a delay or a check. */
const minHealthyMs = 1_000;

/**
 * Returns the reason why a list may help after a failed watch; undefined after a lost connection, a refusal or an
 * overload.
 */
function reasonToList(failure: RequestFailure): RelistReason | undefined {
  if (failure.kind === "expired" || failure.kind === "silent") return failure.kind;
  if (failure.kind === "refused") return [401, 403, 429, 503].includes(failure.status) ? undefined : "refused";
  return failure.kind === "garbled" ? "refused" : undefined;
}

/** Limits and delays of a {@link Reflector}. The program uses the defaults; tests use shorter times. */
export interface ReflectorTiming extends ListLimits {
  /**
   * Minimum duration of a watch, in seconds; the actual duration is random, up to twice as long. Default 30. API
   * servers send bookmarks only after an event (1.36: none in two minutes), so only a missing end distinguishes a dead
   * watch from a quiet one.
   */
  readonly watchSeconds?: number | undefined;
  /**
   * Time after the requested end of a watch when the watch, if silent, counts as dead, in milliseconds. Default 10 000.
   */
  readonly overdueMs?: number | undefined;
  /** Time for which mass deletions wait for the confirming list, in milliseconds. Default 31 000; alerts name it. */
  readonly confirmMs?: number | undefined;
  /** Delays after failures. Default 0.8 to 30 s. */
  readonly backoff?: BackoffOptions | undefined;
}

interface ReflectorOptions extends ReflectorTiming {
  readonly resource: Resource;
  readonly connection: KubeConnection;
  readonly tracker: Pick<ObjectTracker<Kind>, "beginList" | "apply">;
  readonly report: KindReport;
  readonly clock?: Clock | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/**
 * True if resource version `next` is certainly older: the server's etcd was restored or replaced. By KEP-5504, versions
 * are integers that can be compared within a kind. Strings that are not integers are never older.
 */
export function isOlder(next: string, current: string): boolean {
  if (!/^\d+$/.test(current) || !/^\d+$/.test(next)) return false;
  return current.length === next.length ? next < current : next.length < current.length;
}
