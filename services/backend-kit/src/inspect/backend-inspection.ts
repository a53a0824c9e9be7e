import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  BackendInspectService,
  GetBackendResponseSchema,
  type ListRulesRequest,
  ListRulesResponseSchema,
  type Sync,
  SyncSchema,
} from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { durationOf, timestampOf } from "@kpng/model/wire/time-message.ts";
import { serveOnSocket } from "@kpng/process/connection/serve-on-socket.ts";
import type { Task } from "@kpng/process/task.ts";
import type { SyncObserver, SyncTimes, SyncUpdate, ViewUpdate } from "../types/sync-update.ts";

interface BackendInspectionOptions {
  readonly program: { readonly name: string; readonly version: string };
  readonly nodeName: string;
  readonly isConnected: () => boolean;
  /** True for a dry run, which applies no revision. Default false. */
  readonly isDryRun?: boolean | undefined;
  readonly ruleSets?: (() => readonly InspectedRules[]) | undefined;
}

/** Maximum number of drift entries in an answer, as in the proto file. */
const maxDrift = 100;

/**
 * Implements kpng.inspect.v1.BackendInspectService for `kpng get`.
 *
 * *Bound:* the newest view, which the loop holds anyway, and the last sync.
 */
class BackendInspection implements SyncObserver {
  readonly #options: BackendInspectionOptions;
  readonly #startedAtMs = Date.now() - process.uptime() * 1_000;
  #view: NodeView | undefined;
  #instance = "";
  #received = 0n;
  #applied = 0n;
  #lastSync: Sync | undefined;

  constructor(options: BackendInspectionOptions) {
    this.#options = options;
  }

  queued({ revision, instance }: ViewUpdate): void {
    // A new watcher process counts its revisions from the start again.
    if (instance !== this.#instance) this.#applied = 0n;
    this.#instance = instance;
    this.#received = revision;
  }

  settled(update: ViewUpdate): void {
    // An update without changes was not queued.
    this.queued(update);
    this.#apply(update);
  }

  #apply({ view, revision, instance }: ViewUpdate): void {
    this.#view = view;
    // A sync may end after the first view of a restarted watcher was queued; its revision counts no longer.
    if (instance === this.#instance && this.#options.isDryRun !== true) this.#applied = revision;
  }

  succeeded(update: SyncUpdate, times: SyncTimes): void {
    this.#apply(update);
    this.#lastSync = toSync(update, times, "");
  }

  failed(update: SyncUpdate, reason: string, times: SyncTimes): void {
    this.#lastSync = toSync(update, times, reason);
  }

  getBackend() {
    const { program, nodeName, isConnected, ruleSets } = this.#options;
    const { services, endpointCount = 0 } = this.#view ?? { services: new Map() };
    return create(GetBackendResponseSchema, {
      program: program.name,
      version: program.version,
      nodeName,
      startedAt: timestampOf(this.#startedAtMs),
      isConnected: isConnected(),
      instance: this.#instance,
      receivedRevision: this.#received,
      appliedRevision: this.#applied,
      serviceCount: services.size,
      endpointCount,
      ...(this.#lastSync === undefined ? {} : { lastSync: this.#lastSync }),
      ruleSets: (ruleSets?.() ?? []).map((set) => ({
        name: set.name,
        desiredCount: set.desiredCount(),
        actualCount: set.installedCount(),
        ...(set.readAtMs === undefined ? {} : { readAt: timestampOf(set.readAtMs) }),
        ...(set.committedAtMs === undefined ? {} : { committedAt: timestampOf(set.committedAtMs) }),
        drift: set.drift.slice(0, maxDrift),
        repairCount: BigInt(set.repairCount),
      })),
    });
  }

  listRules({ ruleSet, service }: ListRulesRequest) {
    const { ruleSets } = this.#options;
    if (ruleSets === undefined) throw new ConnectError("this backend has no rules", Code.Unimplemented);
    const key = readServiceKey(service);
    const chosen = ruleSets().filter(({ name }) => ruleSet === "" || name === ruleSet);
    const lines = chosen.map((set) => ({
      name: set.name,
      desired: [...set.desired(key)],
      actual: [...set.installed(key)],
    }));
    return create(ListRulesResponseSchema, { ruleSets: lines });
  }
}

function readServiceKey(text: string): ServiceKey | undefined {
  if (text === "") return undefined;
  const [namespace, name, ...rest] = text.split("/");
  if (namespace === undefined || name === undefined || rest.length > 0) {
    throw new ConnectError(`service "${text}" is not of the form namespace/name`, Code.InvalidArgument);
  }
  return `${namespace}/${name}`;
}

function toSync({ mode, revision }: SyncUpdate, times: SyncTimes, error: string): Sync {
  const { receivedAtMs, startedAtMs, renderedAtMs, endedAtMs } = times;
  return create(SyncSchema, {
    startedAt: timestampOf(startedAtMs),
    duration: durationOf(endedAtMs - startedAtMs),
    isFull: mode === "full",
    revision,
    error,
    timings: {
      wait: durationOf(startedAtMs - receivedAtMs),
      render: durationOf(renderedAtMs - startedAtMs),
      commit: durationOf(endedAtMs - renderedAtMs),
    },
  });
}

/**
 * Returns a task that serves the inspection of a backend on a unix socket (`--inspect-socket`), with gRPC and Connect
 * over HTTP/2, and the observer that supplies its answers. Only the socket's owner and group may connect, because the
 * rules of a node are not public. Errors of the task: LISTEN_FAILED.
 */
export function serveInspection(
  path: string,
  options: BackendInspectionOptions,
): { readonly observer: SyncObserver; readonly task: Task } {
  const observer = new BackendInspection(options);
  const run = (signal: AbortSignal): Promise<void> =>
    serveOnSocket(path, (router) => router.service(BackendInspectService, observer), signal);
  return { observer, task: { name: "inspect", run } };
}

/** State of a rule set for inspection; see kpng.inspect.v1 RuleSet. Counts and lists are computed on request. */
export interface InspectedRules {
  /** *Shape:* `v4`. */
  readonly name: string;
  desiredCount(): number;
  installedCount(): number;
  /** Returns the desired rules, one per line; all of them, or only the rules that serve one Service. */
  desired(service?: ServiceKey): readonly string[];
  /** Returns the rules that were last read or committed, in the same form. */
  installed(service?: ServiceKey): readonly string[];
  /** Time at which the installed rules were last read, in milliseconds since 1970; undefined if they never were. */
  readonly readAtMs: number | undefined;
  /** Time of the last commit, in milliseconds since 1970; undefined if there was none. */
  readonly committedAtMs: number | undefined;
  /** Changes by other programs that the last check found and repaired, one per line. */
  readonly drift: readonly string[];
  readonly repairCount: number;
}
