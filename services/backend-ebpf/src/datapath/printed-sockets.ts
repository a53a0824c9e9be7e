import type { FamilyPlan, RuleChange } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { describeKey } from "../layout/layout.ts";
import {
  type DesiredFrontend,
  describeFrontend,
  describeInstalled,
  type FrontendDifference,
  makeEbpfChange,
  maxDescribed,
} from "../tables/frontends.ts";
import { frontendsOf } from "./family-tables.ts";
import type { EbpfMaps } from "./maps.ts";
import type { SocketRules } from "./paired-rule-set.ts";

/** Options of {@link PrintedSockets}. */
interface PrintedSocketsOptions {
  readonly family: Family;
  /** Maps of an earlier run; undefined if there are none. */
  readonly maps: EbpfMaps | undefined;
  /** Default: nothing is printed. */
  readonly print?: ((text: string) => void) | undefined;
  /** Returns a line for each hook without a program. Default: no program is missing. */
  readonly missingPrograms?: (() => readonly string[]) | undefined;
}

/**
 * Replaces `SocketRuleSet` with `--dry-run` and `--diff`. It compares the desired frontends with the frontends in the
 * maps, and writes nothing. It needs neither privileges nor programs.
 */
export class PrintedSockets implements SocketRules {
  readonly #options: PrintedSocketsOptions;
  readonly #services = new Map<ServiceKey, readonly DesiredFrontend[]>();
  /**
   * The contents that the maps would have after the last sync, keyed by frontend: lines without the names of Services,
   * which maps do not contain. Undefined before the first sync.
   */
  #lines: ReadonlyMap<string, string> | undefined;

  constructor(options: PrintedSocketsOptions) {
    this.#options = options;
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    const { family, maps, print, missingPrograms } = this.#options;
    const isFirst = this.#lines === undefined;
    const before = this.#lines ?? (maps === undefined ? new Map() : describeInstalled(family, maps.contents()));
    for (const key of isFirst || touched === "all" ? [...plan.keys(), ...this.#services.keys()] : touched) {
      const desired = frontendsOf(plan, key);
      if (desired.length === 0) this.#services.delete(key);
      else this.#services.set(key, desired);
    }
    const frontends: FrontendDifference[] = [];
    const lines = new Map<string, string>();
    for (const frontend of [...this.#services.values()].flat()) {
      const [after = "", name = ""] = describeFrontend(frontend).split(" # ");
      lines.set(frontend.key, after);
      const place = describeKey(frontend.key);
      const old = before.get(frontend.key);
      if (old !== after) frontends.push({ place, before: old, after: `${after} # ${name}` });
    }
    const written = frontends.length;
    for (const [id, line] of before) {
      if (lines.has(id)) continue;
      frontends.push({ place: describeKey(id), before: line, after: undefined });
    }
    this.#lines = lines;
    // With --diff, the change is the output and must be complete; with --dry-run, all lines are printed below.
    const described = print === undefined ? frontends : frontends.slice(0, maxDescribed);
    const counts = { written, deleted: frontends.length - written };
    const mode = isFirst || touched === "all" ? "full" : "partial";
    if (frontends.length > 0 && print !== undefined) {
      // In the measured times of the sync, printing counts as the commit.
      stages.committing();
      for (const { before: old, after } of frontends) {
        print(`${old === undefined ? "" : `- ${old}\n`}${after === undefined ? "" : `+ ${after}\n`}`);
      }
    }
    return makeEbpfChange(family, mode, { frontends: described, counts, shared: missingPrograms?.() ?? [] });
  }

  async repair(): Promise<RuleChange> {
    const counts = { written: 0, deleted: 0 };
    return makeEbpfChange(this.#options.family, "full", { frontends: [], counts, shared: [] });
  }
}
