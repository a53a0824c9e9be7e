import { type Family, families } from "@kpng/model/address.ts";
import type { WatchResponse } from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { BackendContext } from "../backend/backend-command.ts";
import { backendTask } from "../backend/backend-task.ts";
import { RecentAddresses } from "../node-addresses/local-addresses.ts";
import type { FamilyPlan, RuleChange, RuleList, RuleSet } from "../proxy/rule-set.ts";
import { RuleSets } from "../proxy/rule-sets.ts";
import { SyncRequests } from "../sync/sync-loop.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import {
  deleteOperation,
  nodeOperation,
  resetOperation,
  serviceOperation,
  subjectOf,
  syncOperation,
} from "./plan-message.ts";

/** Changes of the plans of both families, which take effect together. */
export interface PlanBatch {
  /** Revision of the watcher that the plans were made from. */
  readonly revision: bigint;
  /** True if `operations` are the whole state. */
  readonly isWhole: boolean;
  /** The changes, without `reset` and `sync`; nodes come before Services. */
  readonly operations: readonly WatchResponse[];
}

interface PlanTaskOptions {
  /** Name of the backend. */
  readonly name: string;
  readonly settings: ProxySettings;
  readonly context: BackendContext;
  /**
   * Receives each change, one at a time. If it rejects, it is called again with the whole state. `signal` aborts when
   * the task ends.
   */
  readonly deliver: (batch: PlanBatch, state: PlanState, signal: AbortSignal) => Promise<void>;
}

/** Interval at which the node's addresses are read again, because node ports may answer at new ones. */
const addressesEveryMs = 30_000;

/**
 * Returns the task of a backend that passes plans on instead of making rules from them: it follows the view of the
 * node, plans both families as service proxies do, and delivers what changed.
 */
export function planTask({ name, settings, context, deliver }: PlanTaskOptions): Task {
  const state = new PlanState();
  const requests = new SyncRequests();
  const addresses = new RecentAddresses();
  const rules = new RuleSets({
    ...context,
    settings,
    ruleSets: families.map((family) => new CollectingRuleSet(family, state)),
    onOutcome: () => undefined,
    localAddresses: addresses.read,
    forgetAddresses: addresses.forget,
  });
  const pass = async (signal: AbortSignal): Promise<void> => {
    const batch = state.take();
    if (batch === undefined) return;
    try {
      await deliver(batch, state, signal);
    } catch (error) {
      state.invalidate();
      throw error;
    }
  };
  const onChanges = async (update: SyncUpdate, signal: AbortSignal): Promise<void> => {
    const { view, mode, touched, revision } = update;
    const { failure } = await rules.sync(view, mode === "full" ? "all" : touched, { committing: () => undefined });
    if (failure !== undefined) throw failure.cause;
    state.revision = revision;
    await pass(signal);
  };
  // A change of the addresses is delivered by a sync, which is repeated with backoff and counts in health.
  const readAddresses = async (): Promise<void> => {
    const outcomes = await rules.repair();
    const { failure } = outcomes ?? {};
    if (failure !== undefined) context.log.error("plan not made: trying again", { reason: reasonOf(failure.cause) });
    if (failure !== undefined || state.isChanged) requests.request(performance.now());
  };
  return backendTask({
    ...context,
    name,
    onChanges,
    check: { intervalMs: addressesEveryMs, run: readAddresses },
    requests,
    ruleSets: () => rules.inspect(),
  });
}

/**
 * The plans of both families, and what changed since the last batch.
 *
 * *Bound:* the plan of each Service in each family, as a message.
 */
export class PlanState {
  /** Revision of the last complete plans. It changes only after both families are planned. */
  revision = 0n;
  readonly #nodes = new Map<Family, WatchResponse>();
  readonly #services: Readonly<Record<Family, Map<ServiceKey, WatchResponse>>> = { v4: new Map(), v6: new Map() };
  readonly #changed = new Map<string, WatchResponse>();
  #isWhole = false;

  /** True if {@link take} would return a batch. */
  get isChanged(): boolean {
    return this.#isWhole || this.#changed.size > 0;
  }

  /** The whole state, nodes first. */
  *operations(): Generator<WatchResponse, void, void> {
    yield* this.#nodes.values();
    for (const family of families) yield* this.#services[family].values();
  }

  count(family: Family): number {
    return this.#services[family].size;
  }

  update(family: Family, plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): void {
    const services = this.#services[family];
    if (touched === "all") {
      this.#isWhole = true;
      services.clear();
      this.#nodes.set(family, nodeOperation(plan.node));
    }
    for (const key of touched === "all" ? plan.keys() : touched) {
      const service = plan.service(key);
      const operation =
        service === undefined ? deleteOperation(key, family) : serviceOperation(service, plan.view?.(key));
      if (service === undefined) services.delete(key);
      else services.set(key, operation);
      if (!this.#isWhole) this.#changed.set(subjectOf(operation), operation);
    }
  }

  /** Returns what changed since the last call, or undefined if nothing did. */
  take(): PlanBatch | undefined {
    const { revision } = this;
    const isWhole = this.#isWhole;
    const operations = isWhole ? [...this.operations()] : [...this.#changed.values()];
    this.#isWhole = false;
    this.#changed.clear();
    return isWhole || operations.length > 0 ? { revision, isWhole, operations } : undefined;
  }

  /** Makes the next batch the whole state, because the last one was not delivered. */
  invalidate(): void {
    this.#isWhole = true;
  }
}

/** Returns the operations of a batch as a program receives them: with `reset` if it is the whole state, and `sync`. */
export function* framed({ revision, isWhole, operations }: PlanBatch): Generator<WatchResponse, void, void> {
  if (isWhole) yield resetOperation();
  yield* operations;
  yield syncOperation(revision);
}

/** A rule set that installs nothing: its rules are the plans themselves. */
class CollectingRuleSet implements RuleSet {
  readonly servesWholeAddresses = true;
  readonly family: Family;
  readonly #state: PlanState;

  constructor(family: Family, state: PlanState) {
    this.family = family;
    this.#state = state;
  }

  get desired(): RuleList {
    return { count: () => this.#state.count(this.family), lines: () => [] };
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): Promise<RuleChange> {
    this.#state.update(this.family, plan, touched);
    return { ...noChange, mode: touched === "all" ? "full" : "partial" };
  }

  async repair(): Promise<RuleChange> {
    return noChange;
  }

  async isInstalled(): Promise<boolean> {
    return false;
  }
}

const noChange: RuleChange = { mode: "none", fields: {}, differences: () => [] };
