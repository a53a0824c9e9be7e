import type { RuleChange } from "@kpng/backend-kit/proxy/rule-set.ts";
import { transactionStart } from "@kpng/backend-kit/proxy/transaction-start.ts";
import type { Family } from "@kpng/model/address.ts";

/** Result of a sync or a repair: the numbers of frontends that were opened and closed. */
export interface UserspaceChange extends RuleChange {
  readonly opened: number;
  readonly closed: number;
}

interface ChangeParts {
  readonly opened: readonly string[];
  readonly closed: readonly string[];
  /** Differences that a repair found at the entry: the `Entry` that leads packets to the listeners. */
  readonly repaired: readonly string[];
  /** Descriptions of frontends that could not be opened. */
  readonly failed: readonly string[];
}

/**
 * Returns the result of a sync or a repair. Pure.
 *
 * Separate, because `UserspaceRuleSet` and, for `--dry-run`, `PrintedRuleSet` both call it.
 */
export function makeUserspaceChange(family: Family, mode: "full" | "partial", parts: ChangeParts): UserspaceChange {
  const { opened, closed, repaired, failed } = parts;
  const isChanged = opened.length + closed.length + repaired.length > 0;
  const lines = [...opened.map((line) => `+ ${line}`), ...closed.map((line) => `- ${line}`)];
  const listeners = {
    summary: `listeners: ${opened.length} missing, ${closed.length} unwanted`,
    missing: opened,
    unwanted: closed,
    fields: { family, part: "listeners" },
  };
  const atEntry = repaired.map((summary) => ({
    ...{ summary, missing: [], unwanted: [] },
    fields: { family, part: "entry" },
  }));
  return {
    opened: opened.length,
    closed: closed.length,
    mode: isChanged ? mode : "none",
    fields: {
      ...{ opened: opened.length, closed: closed.length, repaired: repaired.length, failed: failed.length },
      ...(lines[0] === undefined ? {} : { example: lines[0] }),
    },
    transaction: transactionStart(lines.join("\n")),
    differences: () => [...(opened.length + closed.length > 0 ? [listeners] : []), ...atEntry],
  };
}
