import { readLocalAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { conntrackLiberal, Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import type { SyncMode } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import { ClashLog } from "./clash-log.ts";
import type { PacketCounters } from "./commit/packet-counters.ts";
import type { RouteLocalnet } from "./commit/route-localnet.ts";
import type { FamilyRules, SyncResult } from "./family-rules.ts";
import type { Tools } from "./read/find-tools.ts";
import { makeRenderOptions } from "./render/make-render-options.ts";
import type { RenderOptions } from "./render/render-options.ts";
import type { Settings } from "./render/settings.ts";
import type { RuleRecord } from "./rule-record.ts";

/** The rules of one family. */
export interface RulesOfFamily {
  readonly family: Family;
  readonly rules: FamilyRules;
  /** What rules may count packets with. Default nothing. */
  readonly counters?: Pick<PacketCounters, "open" | "names"> | undefined;
  /** Of IPv4. Default: the sysctl route_localnet is left alone. */
  readonly localnet?: Pick<RouteLocalnet, "guard" | "afterCommit"> | undefined;
}

/** One family that this node has rules in. */
export interface FamilyParts extends RulesOfFamily {
  readonly tools: Tools;
  /** For who asks what was done. Default nothing is remembered. */
  readonly record?: RuleRecord | undefined;
}

/** Why rules were written: the view changed, or somebody else had changed them. */
export type Cause = "sync" | "repair";

/** Is told of each sync and repair of a family, for metrics and log. */
export type OnSynced<Parts extends RulesOfFamily = FamilyParts> = (
  parts: Parts,
  result: SyncResult | { readonly error: unknown; readonly mode: SyncMode },
  elapsedMs: number,
  cause: Cause,
) => void;

/**
 * The rules of a node, both families: one sync or repair at a time.
 *
 * A family that fails does not keep the other from its rules.
 */
export class NodeRules<Parts extends RulesOfFamily = FamilyParts> {
  readonly #settings: Settings;
  readonly #families: readonly Parts[];
  readonly #onSynced: OnSynced<Parts>;
  readonly #clashes: ClashLog;
  readonly #sysctls = new Sysctls();
  #view: NodeView | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(settings: Settings, families: readonly Parts[], onSynced: OnSynced<Parts>, log: Log) {
    this.#clashes = new ClashLog(log);
    this.#settings = settings;
    this.#families = families;
    this.#onSynced = onSynced;
  }

  /**
   * Makes the rules agree with a view; "all" also reads what stands in the kernel and repairs it.
   *
   * `committing` is called when a family knows what to tell the kernel.
   *
   * Errors: that of the first family that fails, after the other is done.
   */
  sync(view: NodeView, touched: ReadonlySet<ServiceKey> | "all", committing?: () => void): Promise<void> {
    return this.#inTurn(async () => {
      this.#view = view;
      await this.#each(async (parts) => {
        if (touched === "all") await parts.counters?.open();
        const options = await this.#renderOptions(view, parts);
        return parts.rules.sync(view, touched, options, committing);
      }, "sync").finally(() => this.#clashes.tell(this.#families.flatMap(({ rules }) => rules.clashes)));
    });
  }

  /** Repairs what others changed, and takes in new addresses of the node. Before the first sync it does nothing. */
  repair(): Promise<void> {
    return this.#inTurn(async () => {
      const view = this.#view;
      if (view === undefined) return;
      await this.#each(async (parts) => {
        const synced = await parts.rules.sync(view, new Set(), await this.#renderOptions(view, parts));
        return synced.mode === "none" ? ((await parts.rules.repair()) ?? synced) : synced;
      }, "repair");
    });
  }

  /** True if rules that an earlier run of this program has made are in force, in all families. */
  stand(): Promise<boolean> {
    return this.#inTurn(async () => {
      const each = await Promise.all(this.#families.map(({ rules }) => rules.stand(this.#settings.names)));
      return each.length > 0 && each.every((stands) => stands);
    });
  }

  async #each(work: (parts: Parts) => Promise<SyncResult>, cause: Cause): Promise<void> {
    const results = await Promise.allSettled(
      this.#families.map(async (parts) => {
        const startMs = performance.now();
        try {
          const result = await work(parts);
          // Only now: before, nothing kept neighbours from 127.0.0.1.
          await parts.localnet?.afterCommit();
          this.#onSynced(parts, result, performance.now() - startMs, cause);
        } catch (error) {
          this.#onSynced(parts, { error, mode: parts.rules.tried }, performance.now() - startMs, cause);
          throw error;
        }
      }),
    );
    for (const result of results) if (result.status === "rejected") throw result.reason;
  }

  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const run = this.#last.then(work);
    this.#last = run.catch(() => undefined);
    return run;
  }

  async #renderOptions(view: NodeView, { family, counters, localnet }: RulesOfFamily): Promise<RenderOptions> {
    return makeRenderOptions(this.#settings, family, {
      node: view.node,
      localAddresses: readLocalAddresses(),
      isConntrackLiberal: ((await this.#sysctls.read(conntrackLiberal)) ?? 0) !== 0,
      counters: counters?.names,
      localnetGuard: localnet?.guard,
    });
  }
}
