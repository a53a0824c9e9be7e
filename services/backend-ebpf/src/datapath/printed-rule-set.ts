import type { FamilyPlan, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { describeKey } from "../layout/keys.ts";
import { type EbpfChange, type FrontendDifference, makeEbpfChange, maxDescribed } from "../tables/ebpf-change.ts";
import { describeInstalled } from "../tables/installed-frontends.ts";
import { describeFrontend, type WantedService, wantedService } from "../tables/wanted-service.ts";
import { listInstalled, listWanted } from "./list-frontends.ts";
import type { EbpfMaps } from "./maps.ts";

/** Options of {@link PrintedRuleSet}. */
export interface PrintedRuleSetOptions {
  readonly family: Family;
  /** Maps of an earlier run; undefined if there are none. */
  readonly maps: EbpfMaps | undefined;
  /** Default: nothing is printed. */
  readonly print?: ((text: string) => void) | undefined;
}

/** The rule set of `--dry-run` and `--diff`: compares frontends with those in the maps, and writes nothing. */
export class PrintedRuleSet implements RuleSet<EbpfChange> {
  readonly #options: PrintedRuleSetOptions;
  readonly #services = new Map<ServiceKey, WantedService>();
  /** Lines without names by the text of the key, as they would be now; undefined before the first sync. */
  #lines: Map<string, string> | undefined;

  constructor(options: PrintedRuleSetOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  get desired(): RuleList {
    return listWanted(() => this.#services);
  }

  get installed(): RuleList {
    const { family, maps } = this.#options;
    const none: RuleList = { count: () => 0, lines: () => [] };
    return maps === undefined
      ? none
      : listInstalled(
          family,
          () => maps.contents(),
          () => this.#services,
        );
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<EbpfChange> {
    const { family, maps, print } = this.#options;
    const isAll = touched === "all" || this.#lines === undefined;
    this.#lines ??= new Map(maps === undefined ? [] : describeInstalled(family, maps.contents()));
    const lines = this.#lines;
    const keys = isAll ? new Set([...plan.keys(), ...this.#services.keys()]) : touched;
    // First the former frontends of all, because a frontend may pass to another Service.
    const gone = new Set(isAll ? lines.keys() : this.#idsOf(keys));
    const frontends: FrontendDifference[] = [];
    const counts = { written: 0, deleted: 0, members: 0 };
    for (const key of keys) {
      const servicePlan = plan.service(key);
      const wanted = servicePlan === undefined ? undefined : wantedService(servicePlan, plan.view?.(key), plan.node);
      if (wanted === undefined || wanted.frontends.length === 0) this.#services.delete(key);
      else this.#services.set(key, wanted);
      for (const frontend of wanted?.frontends ?? []) {
        const [after = "", name = ""] = describeFrontend(frontend).split(" # ");
        const before = lines.get(frontend.id);
        gone.delete(frontend.id);
        if (before === after) continue;
        lines.set(frontend.id, after);
        counts.written++;
        frontends.push({ place: describeKey(frontend.key), before, after: `${after} # ${name}` });
      }
    }
    for (const id of gone) {
      counts.deleted++;
      frontends.push({ place: describeKey(Buffer.from(id, "latin1")), before: lines.get(id), after: undefined });
      lines.delete(id);
    }
    const described = print === undefined ? frontends : frontends.slice(0, maxDescribed);
    const change = makeEbpfChange(family, isAll ? "full" : "partial", { frontends: described, counts, shared: [] });
    if (change.mode !== "none" && print !== undefined) {
      stages.committing();
      for (const { before, after } of frontends) {
        print(`${before === undefined ? "" : `- ${before}\n`}${after === undefined ? "" : `+ ${after}\n`}`);
      }
    }
    return change;
  }

  async repair(): Promise<EbpfChange> {
    const counts = { written: 0, deleted: 0, members: 0 };
    return makeEbpfChange(this.family, "full", { frontends: [], counts, shared: [] });
  }

  async isInstalled(): Promise<boolean> {
    return this.#options.maps !== undefined;
  }

  #idsOf(keys: Iterable<ServiceKey>): readonly string[] {
    return [...keys].flatMap((key) => (this.#services.get(key)?.frontends ?? []).map(({ id }) => id));
  }
}
