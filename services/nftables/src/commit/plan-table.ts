import { setImmediate as nextTurn } from "node:timers/promises";
import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { dataOf, type ElementValue, numberBytes, readNumber, type SharedSet, unpackSet } from "../layout/elements.ts";
import {
  type BatchStep,
  type ElementChange,
  type SetElement,
  splitElements,
  stepBytes,
} from "../netlink/transaction.ts";
import { type ActualElements, idsOfSlots, type OwnObjects, slotsById } from "../read/read-table.ts";
import type { SharedSetChange } from "../render/element-table.ts";
import type { ServiceElements } from "../render/service-elements.ts";
import { pickChain } from "../render/skeleton.ts";

/** Changes that a sync makes in this order, beside the rules that do not depend on Services. */
export interface TablePlan {
  /** Pick chains. */
  readonly picks: ReadonlySet<string>;
  /** Commands for the chains of Services; "" for none. */
  readonly additions: string;
  readonly elements: readonly SharedSetChange[];
  /**
   * Commands that come last; "" for none: in a full sync those of the base chains, then those that remove chains and
   * sets to which no element leads any more. In this order, because another program may have added a rule to a base
   * chain that leads to a chain of its own in our table, which is removed.
   */
  readonly last: string;
}

/** The rules that do not depend on Services, as commands of nft. */
export interface Frame {
  readonly skeleton: string;
  /** The base chains. */
  readonly hooks: string;
}

/** The table in the kernel before a full sync. */
export interface PresentTable {
  readonly objects: Pick<OwnObjects, "chains" | "sets">;
  readonly elements: ActualElements;
}

/**
 * Plans a full sync of a table: the chains of an earlier run are written again, because their rules may have been
 * changed, and only elements that differ from those in the kernel. Chains that are neither in `frame` nor in the plan are
 * removed.
 */
export async function planInstall(elements: ServiceElements, present: PresentTable, frame: Frame): Promise<TablePlan> {
  const { table, chains } = elements;
  const { objects } = present;
  const known = objects.chains.filter((name) => countOfPick(name) !== undefined);
  for (const name of known) putPick(elements, name);
  await table.compareWith(present.elements);
  const picks = new Set([...known, ...neededPicks(table.newValues())]);
  for (const name of picks) putPick(elements, name);
  const fixed = new Set([...picks, ...frameChains(frame)]);
  const last = `${frame.hooks}${chains.removalsOf(objects.chains, objects.sets, fixed)}`;
  return { picks, additions: chains.additions(), elements: table.changes(), last };
}

/** Plans what has changed since the last commit to a table that has the pick chains `installed`. */
export function planChange(elements: ServiceElements, installed: ReadonlySet<string>): TablePlan {
  const { table, chains } = elements;
  const picks = new Set(neededPicks(table.newValues()).filter((name) => !installed.has(name)));
  for (const name of picks) putPick(elements, name);
  return { picks, additions: chains.additions(), elements: table.changes(), last: chains.removals() };
}

function frameChains({ skeleton, hooks }: Frame): readonly string[] {
  return [...`${skeleton}${hooks}`.matchAll(/^add chain \S+ \S+ (\S+)/gm)].map(([, name = ""]) => name);
}

/** After this many Services the event loop gets a turn, so that health answers during a full sync. */
const servicesPerTurn = 200;

/**
 * Fills empty `elements` with all Services of a plan.
 *
 * The ids that endpoint sets have in the kernel are kept, so that few elements are rewritten: all of them are taken
 * over before any Service gets a new id, and new ids are ones that no set in the kernel has. `actual` are the elements
 * in the kernel.
 */
export async function fillElements(elements: ServiceElements, plan: FamilyPlan, actual: ActualElements): Promise<void> {
  const slots = { slots: slotsById(actual.slots), sticky_slots: slotsById(actual.sticky_slots) };
  const services: ServicePlan[] = [];
  const hasSets = actual.slots.size + actual.sticky_slots.size > 0;
  let count = 0;
  for (const key of plan.keys()) {
    const service = plan.service(key);
    if (service === undefined) continue;
    if (hasSets) {
      elements.adopt(service, (set, element) => actual[set].get(element), slots);
      services.push(service);
      // Without ids to keep, plans need not stay in memory until all are known.
    } else elements.put(key, service);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
  if (hasSets) elements.avoidIds(idsOfSlots(actual.slots).union(idsOfSlots(actual.sticky_slots)));
  for (const service of services) {
    elements.put(service.key, service);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
  elements.table.put("picks", numberBytes(0), "sticky");
}

/** Puts all Services of a plan into `elements`, which have the Services of an earlier plan. */
export async function putAll(elements: ServiceElements, plan: FamilyPlan): Promise<void> {
  const keys = new Set(plan.keys());
  let count = 0;
  for (const key of new Set([...elements.services, ...keys])) {
    elements.put(key, keys.has(key) ? plan.service(key) : undefined);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
}

/**
 * Puts the element that leads from a number of endpoints to the pick chain with this name. Other chains, and those for
 * client affinity, have no such element.
 */
function putPick({ table }: ServiceElements, name: string): void {
  const count = countOfPick(name);
  if (count !== undefined && !name.startsWith("sticky_")) table.put("picks", numberBytes(count), name);
}

const frontendMaps: ReadonlySet<SharedSet> = new Set(["frontends", "local_frontends", "nodeports", "local_nodeports"]);

/**
 * Returns the names of the pick chains that new elements need, each once. A pick chain chooses at random one of a
 * certain number of endpoints: `pick_3` one of three. All Services with that number of endpoints share the chain.
 */
function neededPicks(values: Iterable<readonly [set: SharedSet, value: ElementValue]>): readonly string[] {
  const needed = new Set<string>();
  for (const [set, value] of values) {
    if (frontendMaps.has(set)) {
      const { count } = unpackSet(readNumber(value));
      if (count > 0) needed.add(pickChain(count));
    } else if (dataOf[set] === "jump") needed.add(value);
  }
  return [...needed];
}

/** Returns the number of endpoints among which the pick chain with this name chooses; undefined for other chains. */
export function countOfPick(name: string): number | undefined {
  const count = /^(?:sticky_)?pick_(\d+)$/.exec(name)?.[1];
  return count === undefined ? undefined : Number(count);
}

/**
 * Divides a transaction into several of at most `limit` bytes each, or leaves it whole if it fits. Pure.
 *
 * The kernel accepts no transaction that exceeds a socket's send buffer. Without CAP_NET_ADMIN in the host's user
 * namespace that is `net.core.wmem_max`, about 2 000 elements by default; a larger change would fail again and again.
 * So it is made in parts, in an order in which each frontend leads to old or new endpoints of its old or new set:
 *
 * 1. What is new is added, and what has another value is replaced, each element in one transaction: pick chains, slots
 *    and so on, and then the frontends that count slots.
 * 2. What the new plan lacks is deleted, frontends first.
 *
 * If a part fails, the next full sync compares everything and makes the rest of the change.
 */
export function* divideSteps(steps: readonly BatchStep[], limit: number): Generator<readonly BatchStep[], void, void> {
  if (steps.reduce((sum, step) => sum + stepBytes(step), 0) <= limit) {
    if (steps.length > 0) yield steps;
    return;
  }
  let [part, bytes]: [BatchStep[], number] = [[], 0];
  for (const unit of inOrder(steps, limit / 4)) {
    const size = unit.reduce((sum, step) => sum + stepBytes(step), 0);
    if (bytes + size > limit && part.length > 0) {
      yield part;
      [part, bytes] = [[], 0];
    }
    part.push(...unit);
    bytes += size;
  }
  if (part.length > 0) yield part;
}

/** Yields steps that belong together, each time about `unitBytes`. */
function* inOrder(steps: readonly BatchStep[], unitBytes: number): Generator<readonly BatchStep[], void, void> {
  const changes = steps.filter((step) => step.kind !== "chain");
  const deletes = changes.filter(({ kind }) => kind === "delete");
  const puts = changes.filter(({ kind }) => kind === "put");
  const deleted = new Map(deletes.map(({ set, elements }) => [set, keysOf(elements)]));
  // Of sets without deletes, which have no replaced elements, the keys are not needed: a first load has many.
  const put = new Map(puts.filter(({ set }) => deleted.has(set)).map(({ set, elements }) => [set, keysOf(elements)]));
  const isReplaced = (set: string, { key }: SetElement): boolean =>
    deleted.get(set)?.has(key) === true && put.get(set)?.has(key) === true;
  const parts = ({ set, elements }: ElementChange, replaced: boolean) =>
    splitElements(deleted.has(set) ? elements.filter((one) => isReplaced(set, one) === replaced) : elements, unitBytes);
  for (const step of steps) if (step.kind === "chain") yield [step];
  for (const step of puts.toSorted((a, b) => rankOf(a) - rankOf(b))) {
    for (const elements of parts(step, false)) yield [{ ...step, elements }];
    if (!deleted.has(step.set)) continue;
    for (const elements of parts(step, true)) {
      yield [
        { set: step.set, kind: "delete", elements: elements.map(({ key }) => ({ key })) },
        { ...step, elements },
      ];
    }
  }
  for (const step of deletes) for (const elements of parts(step, false)) yield [{ ...step, elements }];
}

/** Frontends come after what they lead to, which other sets have. */
function rankOf({ set }: ElementChange): number {
  const isFrontend = set.endsWith("frontends") || set.endsWith("nodeports");
  return isFrontend ? (set.startsWith("local_") ? 1 : 2) : 0;
}

function keysOf(elements: readonly SetElement[]): ReadonlySet<string> {
  return new Set(elements.map(({ key }) => key));
}
