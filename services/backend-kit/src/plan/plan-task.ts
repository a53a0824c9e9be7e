import { type Family, families } from "@kpng/model/address.ts";
import type { WatchResponse } from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import { type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import type { Task } from "@kpng/process/task.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { BackendContext } from "../backend/backend-command.ts";
import { backendTask } from "../backend/backend-task.ts";
import { RecentAddresses } from "../node-addresses/local-addresses.ts";
import type { FamilyPlan, RuleChange, RuleSet } from "../proxy/rule-set.ts";
import { RuleSets } from "../proxy/rule-sets.ts";
import { SyncRequests } from "../sync/sync-loop.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import {
  deleteOperation,
  familyOf,
  nodeOperation,
  resetOperation,
  serviceOperation,
  subjectOf,
  syncOperation,
} from "./plan-message.ts";

export interface PlanBatch {
  /** Revision of the watcher that the plans were made from. */
  readonly revision: bigint;
  readonly isWhole: boolean;
  /** The changes, without `reset` and `sync`; nodes come before Services. */
  readonly operations: readonly WatchResponse[];
}

interface PlanTaskOptions {
  readonly name: string;
  readonly settings: ProxySettings;
  readonly context: BackendContext;
  /**
   * Receives each change, one at a time. If it rejects, it is called again with the whole state. `signal` aborts when
   * the task ends.
   */
  readonly deliver: (batch: PlanBatch, state: PlanState, signal: AbortSignal) => Promise<void>;
}

/** Time between two readings of the node's addresses: node ports may answer at new ones. */
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
  const onChanges = async (update: SyncUpdate, signal: AbortSignal): Promise<void> => {
    const { view, mode, touched, revision } = update;
    const { failure } = await rules.sync(view, mode === "full" ? "all" : touched, { committing: () => undefined });
    if (failure !== undefined) throw failure.cause;
    const batch = state.take(revision);
    if (batch === undefined) return;
    try {
      await deliver(batch, state, signal);
    } catch (error) {
      state.invalidate();
      throw error;
    }
  };
  // A change of the addresses is delivered by a sync, which is repeated with backoff and counts in health.
  const readAddresses = async (): Promise<void> => {
    const outcomes = await rules.repair();
    if (outcomes?.failure !== undefined || state.isChanged) requests.request(performance.now());
  };
  return backendTask({
    ...context,
    name,
    onChanges,
    check: { intervalMs: addressesEveryMs, run: readAddresses },
    requests,
  });
}

/**
 * The plans of both families as of the last batch, and what changed since.
 *
 * *Bound:* the plan of each Service in each family, as a message; twice during a full sync.
 */
export class PlanState {
  revision = 0n;
  readonly #taken = new Map<string, WatchResponse>();
  readonly #changed = new Map<string, WatchResponse>();
  #isWhole = false;

  get isChanged(): boolean {
    return this.#isWhole || this.#changed.size > 0;
  }

  /** The whole state as of the last batch. */
  get whole(): PlanBatch {
    const { node = [], service = [] } = Object.groupBy(this.#taken.values(), ({ operation }) => `${operation.case}`);
    return { revision: this.revision, isWhole: true, operations: [...node, ...service] };
  }

  update(family: Family, plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): void {
    const keys = new Set(touched === "all" ? plan.keys() : touched);
    if (touched === "all") {
      this.#isWhole = true;
      const node = nodeOperation(plan.node);
      this.#changed.set(subjectOf(node), node);
      for (const { operation } of [...this.#taken.values(), ...this.#changed.values()]) {
        const { case: kind, value } = operation;
        if (kind === "service" && familyOf(value) === family) keys.add(serviceKey(value));
      }
    }
    for (const key of keys) {
      const service = plan.service(key);
      const operation =
        service === undefined ? deleteOperation(key, family) : serviceOperation(service, plan.view?.(key));
      this.#changed.set(subjectOf(operation), operation);
    }
  }

  /** Returns what changed since the last call, or undefined if nothing did. Call it when both families are planned. */
  take(revision: bigint): PlanBatch | undefined {
    const isWhole = this.#isWhole;
    const operations = [...this.#changed.values()];
    for (const [subject, each] of this.#changed) {
      if (each.operation.case === "delete") this.#taken.delete(subject);
      else this.#taken.set(subject, each);
    }
    this.revision = revision;
    this.#isWhole = false;
    this.#changed.clear();
    if (isWhole) return this.whole;
    return operations.length > 0 ? { revision, isWhole, operations } : undefined;
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
