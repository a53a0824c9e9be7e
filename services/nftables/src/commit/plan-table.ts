import type { SharedSetChange } from "../elements/element-table.ts";
import type { ServiceElements } from "../elements/service-elements.ts";
import type { OwnObjects } from "../read/own-objects.ts";
import type { ActualElements } from "../read/read-table.ts";
import { putPick } from "./fill-elements.ts";
import { countOfPick, neededPicks } from "./needed-picks.ts";

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

/** The table that a full sync finds. */
export interface FoundTable {
  readonly objects: Pick<OwnObjects, "chains" | "sets">;
  readonly elements: ActualElements;
}

/**
 * Plans a full sync of a table: the chains of an earlier run are written again, because their rules may have been
 * changed, and only elements that differ from those found. Chains that are neither in `frame` nor in the plan are
 * removed.
 *
 * `NftTable` carries the plan out, and `PrintedRuleSet` prints it for `--dry-run` and `--diff`.
 */
export async function planInstall(elements: ServiceElements, found: FoundTable, frame: Frame): Promise<TablePlan> {
  const { table, chains } = elements;
  const { objects } = found;
  const known = objects.chains.filter((name) => countOfPick(name) !== undefined);
  for (const name of known) putPick(elements, name);
  await table.compareWith(found.elements);
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
