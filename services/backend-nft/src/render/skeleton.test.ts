import { families } from "@kpng/model/address.ts";
import { expect, test } from "vitest";
import { encodeBatch } from "../netlink/element-batch.ts";
import { pickChainAddition, pickChainBytes } from "./skeleton.ts";

test.each(families)("%s: no pick chain takes more of a transaction than its upper bound", (family) => {
  const table = { family, name: "t".repeat(64) };
  expect(encodeBatch(table, [pickChainAddition(family, 8_191)]).bytes.length).toBeLessThan(pickChainBytes);
});
