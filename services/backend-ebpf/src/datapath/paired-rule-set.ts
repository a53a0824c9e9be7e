import {
  type FamilyPlan,
  noRules,
  type RuleChange,
  type RuleList,
  type RuleSet,
} from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { SocketRules } from "./socket-rule-set.ts";

/**
 * A rule set with two halves: the nftables rules of one family, for packets, and the frontends of the same Services,
 * for sockets. The rules change first; see `FamilyTables`.
 */
export class PairedRuleSet implements RuleSet {
  readonly #packets: RuleSet;
  readonly #sockets: SocketRules;

  constructor(packets: RuleSet, sockets: SocketRules) {
    this.#packets = packets;
    this.#sockets = sockets;
  }

  get family(): Family {
    return this.#packets.family;
  }

  get servesWholeAddresses(): boolean {
    return this.#packets.servesWholeAddresses === true;
  }

  get desired(): RuleList {
    return joinLists(this.#packets.desired, this.#sockets.desired);
  }

  get installed(): RuleList {
    return joinLists(this.#packets.installed, this.#sockets.installed);
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    const shared = touched === "all" ? plan : planOnce(plan, touched);
    const packets = await this.#packets.sync(shared, touched, stages);
    return joinChanges(packets, await this.#sockets.sync(shared, touched, stages));
  }

  async repair(): Promise<RuleChange> {
    const packets = await this.#packets.repair();
    return joinChanges(packets, await this.#sockets.repair());
  }

  isInstalled(): Promise<boolean> {
    return this.#packets.isInstalled();
  }

  async close(): Promise<void> {
    await this.#packets.close?.();
  }
}

/** Returns a plan that keeps the plans of touched Services, because both halves need them. */
function planOnce(plan: FamilyPlan, touched: ReadonlySet<ServiceKey>): FamilyPlan {
  const plans = new Map([...touched].map((key) => [key, plan.service(key)] as const));
  return { ...plan, service: (key) => (plans.has(key) ? plans.get(key) : plan.service(key)) };
}

function joinLists(packets: RuleList = noRules, sockets: RuleList = noRules): RuleList {
  return {
    count: () => packets.count() + sockets.count(),
    lines: () => [...packets.lines(), ...sockets.lines()],
    linesOf: (service) => [...linesOf(packets, service), ...linesOf(sockets, service)],
  };
}

const linesOf = (list: RuleList, service: ServiceKey): readonly string[] => list.linesOf?.(service) ?? [];

function joinChanges(packets: RuleChange, sockets: RuleChange): RuleChange {
  return {
    mode: packets.mode === "none" ? sockets.mode : packets.mode,
    fields: { ...packets.fields, ...sockets.fields },
    differences: () => [...packets.differences(), ...sockets.differences()],
  };
}
