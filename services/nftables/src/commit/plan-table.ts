import { forEachService } from "@kpng/backend-kit/proxy/for-each-service.ts";
import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import { frontendMaps, type SharedSet, sharedSets, unpackSet } from "../layout/elements.ts";
import { type BatchStep, type ElementChange, splitElements, stepBytes } from "../netlink/transaction.ts";
import { type InstalledElements, idsOfSlots, type PresentTable, slotsById } from "../read/read-table.ts";
import type { ElementTable, SharedSetChange } from "../render/element-table.ts";
import type { ServiceElements } from "../render/service-elements.ts";
import { countOfPick, type Frame, isStickyPick, pickChain } from "../render/skeleton.ts";

/** Changes that a sync makes, in this order, in addition to the rules that do not depend on Services. */
export interface TablePlan {
  /** Names of the pick chains to install. */
  readonly picks: ReadonlySet<string>;
  /** Commands for the chains of Services; "" for none. */
  readonly additions: string;
  readonly elements: readonly SharedSetChange[];
  /**
   * Commands that come last; "" for none. They first install base chains (in a full sync, those of the skeleton, too) and
   * then remove the chains and sets to which no element leads any more. The order matters: another program may have added
   * a chain to our table, with a rule in a base chain that jumps to it. That rule must be removed before the chain can be
   * removed.
   */
  readonly last: string;
}

/**
 * Plans a full sync of a table: the chains of an earlier run are written again, because their rules may have been
 * changed; elements are written only if they differ from those in the kernel. Chains that are neither in `frame` nor in
 * the plan are removed.
 */
export async function planInstall(
  elements: ServiceElements,
  { objects, elements: installed }: Pick<PresentTable, "objects" | "elements">,
  frame: Frame,
): Promise<TablePlan> {
  const { table, chains } = elements;
  const known = objects.chains.filter((name) => countOfPick(name) !== undefined);
  await table.compareWith(installed);
  const picks = new Set([...known, ...neededPicks(table)]);
  for (const name of picks) putPick(elements, name);
  const fixed = new Set([...picks, ...frameChains(frame)]);
  const hooks = replaceHooks(`${frame.hooks}${chains.hooks()}`, objects);
  const last = `${hooks}${chains.removalsOf(objects.chains, objects.sets, fixed)}`;
  return { picks, additions: chains.additions(), elements: table.changes(), last };
}

/** Plans the changes since the last commit, for a table that already has the pick chains `installed`. */
export function planChange(elements: ServiceElements, installed: ReadonlySet<string>): TablePlan {
  const { table, chains } = elements;
  const picks = new Set(neededPicks(table).filter((name) => !installed.has(name)));
  for (const name of picks) putPick(elements, name);
  const last = `${chains.hooks()}${chains.removals()}`;
  return { picks, additions: chains.additions(), elements: table.changes(), last };
}

/** Deletes base chains that have another hook before they are added: the kernel does not change the hook of a chain. */
function replaceHooks(commands: string, { chains, hooks }: PresentTable["objects"]): string {
  return commands.replace(/^add chain (\S+ \S+ (\S+)) \{ (.*) \}$/gm, (addition, chain, name, hook) =>
    !chains.includes(name) || hooks.get(name) === hook
      ? addition
      : `flush chain ${chain}\ndelete chain ${chain}\n${addition}`,
  );
}

function frameChains({ skeleton, hooks }: Frame): readonly string[] {
  return [...`${skeleton}${hooks}`.matchAll(/^add chain \S+ \S+ (\S+)/gm)].map(([, name = ""]) => name);
}

/**
 * Fills empty `elements` with all Services of a plan.
 *
 * The ids that endpoint sets have in the kernel are kept, so that few elements are rewritten: all of them are taken
 * over before any Service gets a new id, and a new id is one that no set in the kernel has. `installed` contains the
 * elements in the kernel.
 */
export async function fillElements(
  elements: ServiceElements,
  plan: FamilyPlan,
  installed: InstalledElements,
): Promise<void> {
  if (installed.slots.size + installed.sticky_slots.size > 0) {
    const slots = { slots: slotsById(installed.slots), sticky_slots: slotsById(installed.sticky_slots) };
    await forEachService(plan.keys(), (key) => {
      const service = plan.service(key);
      if (service !== undefined) elements.adopt(service, (set, element) => installed[set].get(element), slots);
    });
    elements.avoidIds(idsOfSlots(installed.slots).union(idsOfSlots(installed.sticky_slots)));
  }
  // Plans are made again: all of them together would take much memory.
  await putAll(elements, plan);
  // Count 0 means a set with affinity (see `packSet`).
  elements.table.put("picks", numberBytes(0), "sticky");
}

/** Puts all Services of a plan into `elements`, which may contain the Services of an earlier plan. */
export async function putAll(elements: ServiceElements, plan: FamilyPlan): Promise<void> {
  const keys = new Set(plan.keys());
  await forEachService(new Set([...elements.services, ...keys]), (key) =>
    elements.put(key, keys.has(key) ? plan.service(key) : undefined),
  );
}

/**
 * Adds the element that maps an endpoint count to the pick chain with this name. Other chains, including pick chains
 * for client affinity, have no such element.
 */
function putPick({ table }: ServiceElements, name: string): void {
  const count = countOfPick(name);
  if (count !== undefined && !isStickyPick(name)) table.put("picks", numberBytes(count), name);
}

/**
 * Returns the names of the pick chains that new elements need, each once. A pick chain chooses one of a fixed number of
 * endpoints at random, e.g. `pick_3` one of three. All Services with that number of endpoints share the chain. It is
 * never removed: packets may be on their way to it, the number returns with the next rollout, and there are few
 * numbers.
 */
function neededPicks(table: ElementTable): readonly string[] {
  const needed = new Set<string>();
  const putInto = (sets: readonly SharedSet[]) => table.changes(sets).filter(({ kind }) => kind === "put");
  for (const { elements } of putInto(sharedSets.filter((set) => frontendMaps.has(set)))) {
    for (const { value = "" } of elements) {
      const { count } = unpackSet(readNumber(value));
      if (count > 0) needed.add(pickChain(count));
    }
  }
  for (const { elements } of putInto(["sticky_counts"])) {
    for (const { value = "" } of elements) needed.add(value);
  }
  return [...needed];
}

/**
 * Divides a transaction into several of at most `limit` bytes each, or leaves it whole if it fits. Pure.
 *
 * The kernel accepts no transaction that exceeds a socket's send buffer. Without CAP_NET_ADMIN in the host's user
 * namespace the limit is `net.core.wmem_max`, which by default is enough for about 2 000 elements; a larger change
 * would fail again and again. So a large change is made in parts, in an order that ensures that each frontend always
 * leads to old or new endpoints of its old or new set:
 *
 * 1. New elements are added and changed elements are replaced, each within a single transaction: first pick chains,
 *    slots and so on, then the frontends, which contain the number of slots.
 * 2. Elements that the new plan lacks are deleted, frontends first.
 *
 * If a part fails, the next full sync compares everything and completes the change.
 */
export function* divideSteps(steps: readonly BatchStep[], limit: number): Generator<readonly BatchStep[], void, void> {
  if (steps.reduce((sum, step) => sum + stepBytes(step), 0) <= limit) {
    if (steps.length > 0) yield steps;
    return;
  }
  let [part, bytes]: [BatchStep[], number] = [[], 0];
  // Replaced elements are deleted and put in one unit, which may be twice as large as requested and cannot be divided.
  // With a quarter of the limit as the requested size, parts are at least about half full.
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

/** Yields groups of steps that belong in the same transaction, each of about `unitBytes`. */
function* inOrder(steps: readonly BatchStep[], unitBytes: number): Generator<readonly BatchStep[], void, void> {
  const changes = steps.filter((step) => step.kind !== "chain");
  const deletes = changes.filter(({ kind }) => kind === "delete");
  const puts = changes.filter(({ kind }) => kind === "put");
  // For each set, the elements that are still to be deleted, by key.
  const left = new Map(
    deletes.map(({ set, elements }) => [set, new Map(Array.from(elements, (one) => [one.key, one]))]),
  );
  for (const step of steps) if (step.kind === "chain") yield [step];
  for (const step of puts.toSorted((a, b) => rankOf(a) - rankOf(b))) {
    const { set } = step;
    for (const elements of splitElements(step.elements, unitBytes)) {
      const replaced = elements.filter(({ key }) => left.get(set)?.delete(key)).map(({ key }) => ({ key }));
      yield [
        ...(replaced.length === 0 ? [] : [{ set, kind: "delete", elements: replaced } as const]),
        { ...step, elements },
      ];
    }
  }
  // `ElementTable.changes` returns the sets in the order of `sharedSets`, in which frontends come first.
  for (const [set, elements] of left) {
    for (const part of splitElements(elements.values(), unitBytes)) yield [{ set, kind: "delete", elements: part }];
  }
}

/**
 * Ranks frontends after the other sets, which contain the elements that frontends lead to. Local frontends come first,
 * because a packet looks them up after a frontend of kind "local".
 */
function rankOf({ set }: ElementChange): number {
  return frontendMaps.has(set) ? (set.startsWith("local_") ? 1 : 2) : 0;
}
