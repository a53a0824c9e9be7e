import { expect, test } from "vitest";
import { savedRules } from "../testing/saved-rules.ts";
import { cleanupTransaction } from "./cleanup-transaction.ts";

test("a cleanup removes our chains and our jumps, and nothing else", () => {
  expect(cleanupTransaction(savedRules, "KPNG-").transaction.split("\n")).toEqual([
    ...["*filter", ":KPNG-FORWARD - [0:0]", "-X KPNG-FORWARD", "COMMIT"],
    ...["*nat", ":KPNG-SERVICES - [0:0]", ":KPNG-EMPTY - [0:0]"],
    '-D PREROUTING -m comment --comment "ours" -j KPNG-SERVICES',
    ...["-X KPNG-SERVICES", "-X KPNG-EMPTY", "COMMIT", ""],
  ]);
  expect(cleanupTransaction(savedRules, "OTHER-")).toEqual({ transaction: "", kept: [] });
});
