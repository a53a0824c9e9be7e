import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { Log } from "@kpng/process/log.ts";
import { FamilyRules } from "../family-rules.ts";
import type { RulesOfFamily } from "../node-rules.ts";
import type { Variant } from "../read/find-tools.ts";
import { type Comparison, compareRules } from "./compare-rules.ts";
import { readNodeFacts } from "./node-facts.ts";
import { ourRules } from "./our-rules.ts";
import { openKubeProxy, type ReadKubeProxy } from "./read-kube-proxy.ts";

/** One family in which this node could have rules; ours are in no kernel, which takes everything and keeps nothing. */
export interface ShadowFamily extends RulesOfFamily {
  readonly readKubeProxy: ReadKubeProxy;
}

/** Errors: IPTABLES_MISSING, IPTABLES_TOO_OLD for IPv4; a node without IPv6 has IPv4 alone. */
export async function openShadowFamilies(
  variant: Variant | "auto",
  timeoutMs: number,
  log: Log,
): Promise<readonly ShadowFamily[]> {
  const opened: ShadowFamily[] = [];
  const nowhere = { read: async () => undefined, restore: async () => undefined };
  for (const family of families) {
    const readKubeProxy = await openKubeProxy(family, variant, timeoutMs);
    if (readKubeProxy === undefined) log.info("no rules in this family", { family });
    else opened.push({ family, rules: new FamilyRules(nowhere, log.with({ family })), readKubeProxy });
  }
  return opened;
}

/** What one look at one family found. */
export type FamilyLook = Comparison & { readonly hasKubeProxy: boolean };

/** Compares one family again and again, and does the work only if either side, or the node, has changed. */
export class FamilyComparer {
  readonly #family: ShadowFamily;
  #inputs = "";
  #last: FamilyLook | undefined;

  constructor(family: ShadowFamily) {
    this.#family = family;
  }

  get family(): Family {
    return this.#family.family;
  }

  /** Errors: SAVE_FAILED, TOOL_TIMEOUT. */
  async look(view: NodeView, signal: AbortSignal): Promise<FamilyLook> {
    const { family, rules, readKubeProxy } = this.#family;
    const { options } = rules;
    const saved = await readKubeProxy();
    const facts = readNodeFacts(family);
    const kpng = options === undefined ? "" : ourRules(rules.bodies, options);
    const inputs = `${JSON.stringify([saved !== undefined, facts.localCIDRs, facts.links])}\n${saved}\n${kpng}`;
    if (this.#last !== undefined && inputs === this.#inputs) return this.#last;
    const world = { family, view, facts, podTraffic: options?.node.podTraffic, nodeAddress: options?.node.nodeAddress };
    const compared = await compareRules({ kubeProxy: saved ?? "", kpng }, world, signal);
    const look = { ...compared, hasKubeProxy: saved !== undefined };
    if (signal.aborted) return look;
    this.#inputs = inputs;
    this.#last = look;
    return look;
  }
}
