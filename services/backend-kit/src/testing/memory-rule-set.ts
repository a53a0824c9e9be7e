import type { Family } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { frontendId } from "@kpng/service-plan/frontend-claims.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import type { FamilyPlan, RuleChange, RuleDifference, RuleList, RuleSet } from "../proxy/rule-set.ts";
import type { SyncStages } from "../types/sync-update.ts";

/**
 * A rule set without a kernel, for the tests of `proxy/`, the code that all service proxies share. It has one line for
 * each Service, in a map that a test can change as another program would change the kernel.
 */
export class MemoryRuleSet implements RuleSet {
  readonly family: Family;
  /** Installed rules. */
  readonly lines = new Map<ServiceKey, string>();
  /** Argument `touched` of each call of `sync`. */
  readonly touched: (readonly ServiceKey[] | "all")[] = [];
  /** Error with which calls fail while it is set. */
  failure: Error | undefined;
  #desired = new Map<ServiceKey, string>();

  constructor(family: Family = "v4") {
    this.family = family;
  }

  get desired(): RuleList {
    return listOf(this.#desired);
  }

  get installed(): RuleList {
    return listOf(this.lines);
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    this.touched.push(touched === "all" ? "all" : [...touched]);
    if (touched === "all") this.#desired = new Map();
    for (const key of touched === "all" ? plan.keys() : touched) {
      const service = plan.service(key);
      if (service === undefined) this.#desired.delete(key);
      else this.#desired.set(key, lineOf(service));
    }
    return this.#write(touched, stages);
  }

  async repair(): Promise<RuleChange> {
    return this.#write("all", undefined);
  }

  async isInstalled(): Promise<boolean> {
    if (this.failure !== undefined) throw this.failure;
    return this.lines.size > 0;
  }

  #write(touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages | undefined): RuleChange {
    if (this.failure !== undefined) throw this.failure;
    const differences: RuleDifference[] = [];
    for (const key of touched === "all" ? new Set([...this.#desired.keys(), ...this.lines.keys()]) : touched) {
      const [desired, installed] = [this.#desired.get(key), this.lines.get(key)];
      if (desired === installed) continue;
      stages?.committing();
      const toList = (line: string | undefined) => (line === undefined ? [] : [line]);
      const summary = `${key}: rules differ`;
      differences.push({ summary, missing: toList(desired), unwanted: toList(installed), fields: { key } });
      if (desired === undefined) this.lines.delete(key);
      else this.lines.set(key, desired);
    }
    return {
      mode: differences.length === 0 ? "none" : touched === "all" ? "full" : "partial",
      fields: { rules: differences.length },
      differences: () => differences,
    };
  }
}

/** *Shape:* `a/web 10.96.0.10:80/TCP`. */
function lineOf({ key, ports }: ServicePlan): string {
  return [key, ...ports.flatMap(({ frontends }) => frontends.map(frontendId))].join(" ");
}

function listOf(lines: ReadonlyMap<ServiceKey, string>): RuleList {
  return { count: () => lines.size, lines: () => [...lines.values()].sort(compareText) };
}
