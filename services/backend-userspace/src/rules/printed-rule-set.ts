import type { FamilyPlan, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { verdictOf } from "../listen/gate.ts";
import { makeUserspaceChange, type UserspaceChange } from "./userspace-rule-set.ts";

/** The rule set of `--dry-run`: prints the frontends that would be opened, and opens nothing. */
export class PrintedRuleSet implements RuleSet<UserspaceChange> {
  readonly family: Family;
  readonly #print: (text: string) => void;
  readonly #byService = new Map<ServiceKey, readonly string[]>();

  constructor(family: Family, print: (text: string) => void) {
    this.family = family;
    this.#print = print;
  }

  get desired() {
    const lines = () => [...this.#byService.values()].flat().sort();
    return { count: () => lines().length, lines };
  }

  readonly installed = { count: () => 0, lines: () => [] };

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): Promise<UserspaceChange> {
    const [opened, closed]: [string[], string[]] = [[], []];
    for (const key of touched === "all" ? new Set([...plan.keys(), ...this.#byService.keys()]) : touched) {
      const before = this.#byService.get(key) ?? [];
      const after = describe(plan, key);
      opened.push(...after.filter((line) => !before.includes(line)));
      closed.push(...before.filter((line) => !after.includes(line)));
      if (after.length === 0) this.#byService.delete(key);
      else this.#byService.set(key, after);
    }
    const change = makeUserspaceChange(this.family, touched === "all" ? "full" : "partial", {
      ...{ opened, closed, repaired: [], failed: [] },
    });
    if (opened.length + closed.length > 0) {
      this.#print(`${[...opened.map((line) => `+ ${line}`), ...closed.map((line) => `- ${line}`)].join("\n")}\n`);
    }
    return change;
  }

  async repair(): Promise<UserspaceChange> {
    return makeUserspaceChange(this.family, "full", { opened: [], closed: [], repaired: [], failed: [] });
  }

  async isInstalled(): Promise<boolean> {
    return false;
  }
}

function describe(plan: FamilyPlan, key: ServiceKey): readonly string[] {
  return (plan.service(key)?.ports ?? []).flatMap(({ name, frontends }) =>
    frontends.map(({ address, port, protocol, ...frontend }) => {
      const verdict = protocol === "SCTP" ? "not served" : verdictOf({ address, port, protocol, ...frontend });
      return `${protocol} ${addressAndPort(address ?? "*", port)} ${name} ${verdict}`;
    }),
  );
}
