import type { RuleChange, RuleDifference } from "@kpng/backend-kit/proxy/rule-set.ts";
import { transactionStart } from "@kpng/backend-kit/proxy/transaction-start.ts";
import type { SyncMode } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";

/** A frontend that differs, by lines of `describeFrontend`. */
export interface FrontendDifference {
  /** *Shape:* `TCP 10.96.0.1:80`. */
  readonly place: string;
  /** Undefined if it was not installed. */
  readonly before: string | undefined;
  /** Undefined if it is not wanted. */
  readonly after: string | undefined;
}

/** Parts of a change. */
export interface ChangeParts {
  /** At most `maxDescribed`. */
  readonly frontends: readonly FrontendDifference[];
  readonly counts: { readonly written: number; readonly deleted: number };
  /** Differences of what both families share, a line each. *Shape:* `program connect4 attached`. */
  readonly shared: readonly string[];
}

/** Frontends of a change that are described; a first sync may have a hundred thousand. */
export const maxDescribed = 1_000;

/** Returns a change for the kit. Pure. */
export function makeEbpfChange(family: Family, mode: SyncMode, { frontends, counts, shared }: ChangeParts): RuleChange {
  const isChanged = counts.written + counts.deleted + shared.length > 0;
  const lines = [
    ...shared.map((line) => `# ${line}`),
    ...frontends.flatMap(({ before, after }) => [
      ...(before === undefined ? [] : [`- ${before}`]),
      ...(after === undefined ? [] : [`+ ${after}`]),
    ]),
  ];
  const differences = (): readonly RuleDifference[] => [
    ...shared.map((summary) => ({ summary, missing: [], unwanted: [], fields: { part: "node" } })),
    ...frontends.map(({ place, before, after }) => ({
      summary: `${place}: ${before === undefined ? "missing" : after === undefined ? "not wanted" : "differs"}`,
      missing: after === undefined ? [] : [after],
      unwanted: before === undefined ? [] : [before],
      fields: { part: "frontends", frontend: place },
    })),
  ];
  return {
    mode: isChanged ? mode : "none",
    fields: { family, ...counts, ...(lines[0] === undefined ? {} : { example: lines[0] }) },
    transaction: transactionStart(lines.join("\n")),
    differences,
  };
}
