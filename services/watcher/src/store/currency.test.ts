import { setImmediate as turn } from "node:timers/promises";
import type { Position } from "@kpng/model/forward/position.ts";
import { expect, test } from "vitest";
import type { Verify, Versions } from "../source/source.ts";
import { node, service } from "../testing/build.ts";
import { Currency } from "./currency.ts";
import { Store } from "./store.ts";

const at = (version: bigint, fields: Partial<Position> = {}): Position => ({
  source: "kube",
  epoch: 0n,
  services: version,
  slices: version,
  nodes: version,
  ...fields,
});
const all = (version: bigint): Versions => ({ services: version, slices: version, nodes: version });
const names = Array.from({ length: 20 }, (_, index) => `s${index}`);

/** A store whose source listed everything at version 10, and asks its server as `verify` does. */
function setUp(verify: Verify = () => Promise.resolve(false)) {
  const store = new Store();
  const services = names.map((name) => service({ name }));
  store.replace({ services, slices: [], nodes: [node("n1")] }, { source: "kube", receivedAtMs: 0, versions: all(10n) });
  const currency = new Currency(store, 0);
  currency.known(all(10n));
  const asked: Position[] = [];
  currency.verifyWith((needed, isNewEpoch) => {
    asked.push(needed);
    return verify(needed, isNewEpoch);
  });
  return { store, currency, asked };
}

test("a state covers its own position and earlier ones without a question", async () => {
  const { currency, asked } = setUp();
  expect(await currency.covers(at(10n))).toBe(true);
  expect(await currency.covers(at(9n))).toBe(true);
  expect(asked).toEqual([]);
});

test("a bookmark shows that the state covers a later position without a change", async () => {
  const { currency, asked } = setUp();
  currency.known(all(15n));
  expect(await currency.covers(at(15n))).toBe(true);
  expect(asked).toEqual([]);
});

test("in doubt, one question is shared by all callers", async () => {
  const { currency, asked } = setUp(async () => {
    await turn();
    currency.known(all(20n));
    return true;
  });
  const answers = await Promise.all([at(20n), at(20n), at(19n)].map((needed) => currency.covers(needed)));
  expect(answers).toEqual([true, true, true]);
  expect(asked).toHaveLength(1);
});

test("a server that does not have the position does not make the state cover it", async () => {
  const { currency, asked } = setUp();
  expect(await currency.covers(at(20n))).toBe(false);
  expect(asked).toHaveLength(1);
});

test.each([
  {
    what: "a stale source",
    prepare: ({ currency }: { currency: Currency }) => currency.stale("frozen"),
    needed: at(20n),
  },
  { what: "a position of another source", prepare: () => undefined, needed: at(20n, { source: "file" }) },
  { what: "an epoch that no restores explain", prepare: () => undefined, needed: at(5n, { epoch: 1_001n }) },
])("$what is not asked, and nothing is covered", async ({ prepare, needed }) => {
  const set = setUp(() => Promise.resolve(true));
  prepare(set);
  expect(await set.currency.covers(needed)).toBe(false);
  expect(set.asked).toEqual([]);
});
