import { families } from "@kpng/model/address.ts";
import { expect, test } from "vitest";
import { encodeBatch, stepBytes } from "../netlink/transaction.ts";
import { pickChainAddition } from "./skeleton.ts";

test.each(families)("%s: no pick chain takes more of a transaction than its upper bound", (family) => {
  const table = { family, name: "t".repeat(64) };
  const chain = pickChainAddition(family, "pick_8191");
  expect(encodeBatch(table, [chain]).bytes.length).toBeLessThan(stepBytes(chain));
});
