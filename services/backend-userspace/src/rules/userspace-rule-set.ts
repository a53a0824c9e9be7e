import { isIPv6 } from "node:net";
import { type FrontendKey, ipFrontend, nodePortFrontend } from "@kpng/backend-kit/conntrack/udp-flows.ts";
import type { FamilyPlan, RuleChange, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { Protocol, ServiceKey } from "@kpng/model/service.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import { BackendUserspaceError, type Entry, type Place } from "../entry/entry.ts";
import { isUsable } from "../entry/redirect-entry.ts";
import { Senders, verdictOf } from "../listen/tcp-listener.ts";
import { describeFrontend, FrontendTable, type ServedFrontend } from "./frontend-table.ts";
import type { UserspaceRuntime } from "./userspace-runtime.ts";

interface UserspaceRuleSetOptions {
  readonly entry: Entry;
  readonly runtime: UserspaceRuntime;
  /** Returns the node's addresses. */
  readonly localAddresses: () => AddressSet;
}

/**
 * The listeners of one family, in the form of a rule set.
 *
 * The "rules" are the listeners in this process and the `Entry` that leads packets to them. They end with the process,
 * so no rules of an earlier run can be in force. A sync opens new listeners, publishes all changes to the entry, and
 * then closes old listeners, so that packets are never sent to a port where nothing listens. If a frontend cannot be
 * opened, for example because other programs use all ports of the range, this is logged and the frontend is tried again
 * with each check; other frontends are not affected. If no frontend can be opened, the sync fails, so that `/healthz`
 * fails while nothing listens; it does not fail in a family without an address on the node if the other family has one.
 */
export class UserspaceRuleSet implements RuleSet {
  readonly #options: UserspaceRuleSetOptions;
  readonly #senders = new Senders();
  readonly #table: FrontendTable;

  constructor(options: UserspaceRuleSetOptions) {
    this.#options = options;
    this.#table = new FrontendTable(options.runtime, this.#senders);
    options.runtime.add(this);
  }

  get family(): Family {
    return this.#options.entry.family;
  }

  get socketCount(): number {
    return this.#planned().filter(({ isListening }) => isListening).length;
  }

  /** Yields the UDP listeners with their frontends, in the form that conntrack uses. */
  *udpListeners(): Generator<readonly [listener: string, FrontendKey], void, void> {
    for (const { frontend, state } of this.#planned()) {
      const { address, protocol, port } = frontend;
      if (protocol !== "UDP" || state.kind !== "open") continue;
      const key = address === undefined ? nodePortFrontend(this.family, port) : ipFrontend(address, port);
      yield [`${state.at.address} ${state.at.port}`, key];
    }
  }

  get closedCount(): number {
    return this.#planned().filter(({ failure }) => failure !== undefined).length;
  }

  /**
   * Returns whether connections of this process to an address and port would reach one of its listeners: through the
   * entry, or at an address of the node if it listens at all of them (`--map 0.0.0.0`).
   */
  readonly captures = (protocol: Protocol, to: EndpointAddress): boolean => {
    const { entry, runtime } = this.#options;
    const anywhere = { address: isIPv6(to.address) ? "::" : "0.0.0.0", port: to.port };
    if (runtime.isListening(protocol, anywhere) && this.#senders.isLocal(to.address)) return true;
    return entry.captures?.(protocol, to) ?? false;
  };

  readonly serves = (service: ServiceKey): boolean => this.#table.has(service);

  get desired(): RuleList {
    return this.#list(() => true);
  }

  get installed(): RuleList {
    return this.#list(({ failure }) => failure === undefined);
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    const localAddresses = this.#options.localAddresses()[this.family];
    this.#senders.update(plan.node, localAddresses);
    const isNodeChanged = this.#options.entry.useNode?.({ plan: plan.node, localAddresses }) ?? false;
    const keys = touched === "all" ? new Set([...plan.keys(), ...this.#table.keys]) : touched;
    const changed = this.#table.update(plan, keys);
    const isAll = touched === "all" || isNodeChanged;
    const change = await this.#apply(isAll ? [...this.#table.all] : changed, isAll ? "full" : "partial", stages);
    this.#options.runtime.prune();
    return change;
  }

  async repair(): Promise<RuleChange> {
    const repaired = await this.#options.entry.repair?.();
    return this.#apply([...this.#table.all], "full", undefined, repaired);
  }

  async isInstalled(): Promise<boolean> {
    return false;
  }

  async close(): Promise<void> {
    const { entry, runtime } = this.#options;
    // Done first, so that no packet is sent to a closed listener.
    await entry.close?.().catch((error: unknown) => {
      runtime.log.error("packets may still be led to ports where nothing listens: run --cleanup", {
        family: this.family,
        reason: String(error),
      });
    });
    for (const frontend of this.#table.all) frontend.close();
    runtime.remove(this);
  }

  async #apply(
    frontends: readonly ServedFrontend[],
    mode: "full" | "partial",
    stages: SyncStages | undefined,
    repaired: readonly string[] = [],
  ): Promise<RuleChange> {
    const { entry, runtime } = this.#options;
    if (frontends.length > 0) stages?.committing();
    const opened = await this.#open(frontends);
    runtime.updateLimits();
    await entry.publish(frontends.map((at) => ({ at, state: at.state })));
    const closed: string[] = [];
    for (const frontend of frontends) {
      if (frontend.closeReplaced() && !opened.has(frontend)) closed.push(frontend.describe());
      if (!frontend.isPlanned) this.#table.delete(frontend);
    }
    const failed = this.#planned().flatMap(({ failure }) => (failure === undefined ? [] : [failure]));
    this.#requireListener(failed);
    const lines = [...opened].map((frontend) => frontend.describe());
    return makeChange(this.family, mode, { opened: lines, closed, repaired, failed });
  }

  /** Opens missing listeners. Returns the frontends for which a listener was opened. */
  async #open(frontends: readonly ServedFrontend[]): Promise<ReadonlySet<ServedFrontend>> {
    const opened = new Set<ServedFrontend>();
    for (const frontend of frontends) {
      const failureBefore = frontend.failure;
      if (await frontend.openAt(this.#placeOf(frontend))) opened.add(frontend);
      const { name: service, failure: reason } = frontend;
      if (reason === undefined || reason === failureBefore) continue;
      this.#options.runtime.log.error("frontend not opened: it is tried again with each check", { service, reason });
    }
    return opened;
  }

  #placeOf(frontend: ServedFrontend): Place | undefined {
    return frontend.isPlanned && frontend.verdict === "serve" ? this.#options.entry.placeOf(frontend) : undefined;
  }

  /**
   * Checks that at least one listener is open. Errors: NOTHING_LISTENS if there are frontends to open but none could be
   * opened.
   */
  #requireListener(failed: readonly string[]): void {
    if (failed.length === 0 || this.socketCount > 0 || this.#isOtherFamilyOnly()) return;
    const text = `none of ${failed.length} frontends could be opened, the first because of ${failed[0]}`;
    throw new BackendUserspaceError("NOTHING_LISTENS", text);
  }

  /** Whether the node has addresses of the other family only. Then, as with kube-proxy, that family alone is served. */
  #isOtherFamilyOnly(): boolean {
    const others = this.#options.localAddresses()[this.family === "v4" ? "v6" : "v4"];
    return others.some(isUsable) && this.#planned().every((one) => this.#placeOf(one)?.address === undefined);
  }

  #planned(): readonly ServedFrontend[] {
    return [...this.#table.all].filter(({ isPlanned }) => isPlanned);
  }

  #list(isShown: (frontend: ServedFrontend) => boolean): RuleList {
    const shown = () => this.#planned().filter(isShown);
    const describe = (frontend: ServedFrontend): string => frontend.describe();
    return { count: () => shown().length, lines: () => shown().map(describe).sort() };
  }
}

interface ChangeParts {
  readonly opened: readonly string[];
  readonly closed: readonly string[];
  /** Differences that a repair found at the `Entry` (which leads packets to the listeners). */
  readonly repaired?: readonly string[];
  /** Descriptions of frontends that could not be opened. */
  readonly failed?: readonly string[];
}

/**
 * Returns the result of a sync or a repair. Only listeners and repairs count as changes: frontends that are refused or
 * dropped have no listener, so the state that is published for them is not reported. Pure.
 */
function makeChange(family: Family, mode: "full" | "partial", parts: ChangeParts): RuleChange {
  const { opened, closed, repaired = [], failed = [] } = parts;
  const hasListeners = opened.length + closed.length > 0;
  const listeners = {
    summary: `listeners: ${opened.length} missing, ${closed.length} unwanted`,
    missing: opened,
    unwanted: closed,
    fields: { family, part: "listeners" },
  };
  const atEntry = { missing: [], unwanted: [], fields: { family, part: "entry" } };
  return {
    mode: hasListeners || repaired.length > 0 ? mode : "none",
    fields: {
      opened: opened.length,
      closed: closed.length,
      repaired: repaired.length,
      failed: failed.length,
      example: opened[0] ?? closed[0],
    },
    differences: () => [...(hasListeners ? [listeners] : []), ...repaired.map((summary) => ({ summary, ...atEntry }))],
  };
}

/** The rule set for `--dry-run`. It prints the frontends that would be opened, and opens nothing. */
export class PrintedRuleSet implements RuleSet {
  readonly family: Family;
  readonly #print: (text: string) => void;
  #lines: ReadonlySet<string> = new Set();

  constructor(family: Family, print: (text: string) => void) {
    this.family = family;
    this.#print = print;
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): Promise<RuleChange> {
    const lines = new Set([...plan.keys()].flatMap((key) => describe(plan, key)));
    const [opened, closed] = [[...lines.difference(this.#lines)], [...this.#lines.difference(lines)]];
    this.#lines = lines;
    for (const line of opened) this.#print(`+ ${line}\n`);
    for (const line of closed) this.#print(`- ${line}\n`);
    return makeChange(this.family, touched === "all" ? "full" : "partial", { opened, closed });
  }

  async repair(): Promise<RuleChange> {
    return makeChange(this.family, "full", { opened: [], closed: [] });
  }

  async isInstalled(): Promise<boolean> {
    return false;
  }
}

function describe(plan: FamilyPlan, key: ServiceKey): readonly string[] {
  return (plan.service(key)?.ports ?? []).flatMap(({ name, frontends }) =>
    frontends.map((frontend) =>
      describeFrontend(frontend, name, frontend.protocol === "SCTP" ? "not served" : verdictOf(frontend)),
    ),
  );
}
